"""An estimate as text; rows and columns are named as its fields."""

from dataclasses import asdict

from loriini.cli.output import format_table
from loriini.common.checks import as_argument
from loriini.estimate.choice import MARGIN
from loriini.estimate.estimate import Estimate
from loriini.estimate.memory import GIB

VERDICT = {None: "", True: "fits", False: "too much"}


def estimate_text(e: Estimate) -> str:
    """An estimate's sizes, then two tables: memory by part, and settings with whether they fit."""
    chosen, steps = e.options[0], e.run["steps"]
    head = [
        f"{e.name} on {e.gpus} {'GPU' if e.gpus == 1 else 'GPUs'}",
        f"parameters {e.parameters_total:,}, active for a token {e.parameters_active:,}, "
        f"vocabulary {e.vocab_size:,}",
        f"{_number(e.flops_per_token / 1e9)} GFLOP a token, {_number(e.flops_per_step / 1e12)} TFLOP a step "
        f"of {e.tokens_per_step:,} tokens",
        f"{steps:,} steps: {_number(steps * e.tokens_per_step / 1e9)} G tokens, "
        f"{_number(steps * e.flops_per_step / 1e15)} PFLOP",
    ]
    if e.muon_bytes:
        head.append(
            f"Muon gathers matrices: {_gib(e.muon_bytes)} GiB sent and received by each rank in a step"
        )
    if e.chosen_for is not None:
        head.append(
            f"chosen for {_gib(e.chosen_for)} GiB, {MARGIN:.0%} of them free: micro_batch_size "
            f"{chosen.micro_batch_size}, recompute_merge {as_argument(chosen.recompute_merge)}"
            + ("; too large" if chosen.memory.total > e.chosen_for else "")
        )
    parts = {**asdict(chosen.memory), "total": chosen.memory.total}
    memory = [[name, _gib(size)] for name, size in parts.items()]
    settings = ("micro_batch_size", "recompute_merge", "activation_checkpointing")
    options = [
        [*(as_argument(getattr(o, name)) for name in settings), _gib(o.memory.total), VERDICT[o.fits]]
        for o in e.options
    ]
    limit = "" if e.gpu_memory is None else f"in {_gib(e.gpu_memory)} GiB"
    tables = ((["memory of a rank", "GiB"], memory), ([*settings, "GiB a rank", limit], options))
    return "\n\n".join(["\n".join(head), *(format_table(*table, align_right=True) for table in tables)])


def _number(value: float) -> str:
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def _gib(size: float) -> str:
    return f"{size / GIB:,.2f}"
