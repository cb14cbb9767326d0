"""An estimate as tables."""

from loriini.cli.output import format_table
from loriini.common.checks import as_argument
from loriini.estimate.choice import MARGIN
from loriini.estimate.communication import Communication
from loriini.estimate.estimate import Estimate, Option
from loriini.estimate.memory import GIB

PARALLELISMS = {
    "fsdp": "FSDP",
    "expert_parallel": "expert parallelism",
    "expert_wise": "expert-wise parallelism",
}
ASSUMED_MFU = 0.4
"""Model FLOPs utilisation, the share of a device's peak that good training reaches."""


def estimate_text(estimate: Estimate) -> str:
    """An estimate's tables: memory, settings that fit, communication."""
    chosen = estimate.options[0]
    return "\n\n".join([_head(estimate), _memory(chosen), _options(estimate), _communication(estimate)])


def _head(e: Estimate) -> str:
    lines = [
        f"{e.name} on {e.gpus} {'GPU' if e.gpus == 1 else 'GPUs'}",
        f"parameters {e.parameters_total:,}, active for a token {e.parameters_active:,}, "
        f"vocabulary {e.vocab_size:,}",
        f"{_number(e.flops_per_token / 1e9, 2)} GFLOP a token, "
        f"{_number(e.flops_per_step / 1e12, 1)} TFLOP a step of {e.tokens_per_step:,} tokens",
    ]
    if e.peak_flops:
        rate = ASSUMED_MFU * e.peak_flops * e.gpus / e.flops_per_token
        lines.append(
            f"at an MFU of {ASSUMED_MFU:.0%}: {rate:,.0f} tokens/s, {e.tokens_per_step / rate:,.2f} s a step"
        )
    if e.chosen_for is not None:
        chosen = e.options[0]
        lines.append(
            f"chosen for {_gib(e.chosen_for)} GiB, {MARGIN:.0%} of them free: micro_batch_size "
            f"{chosen.micro_batch_size}, recompute_merge {as_argument(chosen.recompute_merge)}"
            + ("; too large" if chosen.memory.total > e.chosen_for else "")
        )
    return "\n".join(lines)


def _number(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}" if value >= 1 else f"{value:.2g}"


def _memory(option: Option) -> str:
    memory = option.memory
    rows = [
        ("parameters, float32", memory.parameters),
        ("gradients", memory.gradients),
        ("optimizer state", memory.optimizer),
        ("weights gathered or cast", memory.gathered),
        ("activations", memory.activations),
        ("  merged experts among them", memory.merged),
        ("transient gradients", memory.transient),
        ("total", memory.total),
    ]
    return format_table(["memory of a rank", "GiB"], [[name, _gib(x)] for name, x in rows], align_right=True)


def _options(e: Estimate) -> str:
    verdict = {None: "", True: "fits", False: "too much"}
    rows = [
        [
            str(o.micro_batch_size),
            as_argument(o.recompute_merge),
            as_argument(o.activation_checkpointing),
            _gib(o.memory.total),
            verdict[o.fits],
        ]
        for o in e.options
    ]
    last = "" if e.gpu_memory is None else f"in {_gib(e.gpu_memory)} GiB"
    head = ["micro_batch_size", "recompute_merge", "activation_checkpointing", "GiB a rank", last]
    return format_table(head, rows, align_right=True)


def _communication(e: Estimate) -> str:
    rows = [
        [PARALLELISMS[name], *(_sizes(received) if received else ["not for this design", "", "", ""])]
        for name, received in e.communication.items()
    ]
    head = [f"GiB a rank receives in a step (groups of {e.group})", "parameters", "gradients", "activations"]
    return format_table([*head, "total"], rows, align_right=True)


def _sizes(received: Communication) -> list[str]:
    sizes = (received.parameters, received.gradients, received.activations, received.total)
    return [_gib(size) for size in sizes]


def _gib(size: float) -> str:
    return f"{size / GIB:,.2f}"
