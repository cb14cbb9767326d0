"""An estimate as a person reads it."""

from loriini.cli.table import table
from loriini.estimate.communication import Traffic
from loriini.estimate.estimate import GIB, Estimate, Option

PARALLELISMS = {
    "fsdp": "FSDP",
    "expert_parallel": "expert parallelism",
    "expert_wise": "expert-wise parallelism",
}
SUPPOSED_MFU = 0.4
"""The share of a device's peak that good training reaches."""


def estimate_text(estimate: Estimate) -> str:
    """Tables of what is known before a run starts."""
    own = estimate.options[0]
    return "\n\n".join(
        [_head(estimate), _holding(own), _options(estimate), _traffic(estimate), _paper(estimate)]
    )


def _head(e: Estimate) -> str:
    lines = [
        f"{e.name} on {e.gpus} {'GPU' if e.gpus == 1 else 'GPUs'}",
        f"parameters {e.parameters_total:,}, of which a token uses {e.parameters_active:,}",
        f"{e.flops_per_token / 1e9:,.2f} GFLOP a token, {e.flops_per_step / 1e12:,.1f} TFLOP a step of "
        f"{e.tokens_per_step:,} tokens",
    ]
    if e.peak_flops:
        rate = SUPPOSED_MFU * e.peak_flops * e.gpus / e.flops_per_token
        lines.append(
            f"at an MFU of {SUPPOSED_MFU:.0%}: {rate:,.0f} tokens/s, {e.tokens_per_step / rate:,.2f} s a step"
        )
    return "\n".join(lines)


def _holding(own: Option) -> str:
    held = own.holding
    rows = [
        ("parameters, float32", held.parameters),
        ("gradients", held.gradients),
        ("optimizer state", held.optimizer),
        ("weights gathered or cast", held.gathered),
        ("activations", held.activations),
        ("  of which merged experts", held.merged),
        ("gradients on the way", held.working),
        ("together", held.total),
    ]
    return table(["each rank holds", "GiB"], [[name, _gib(size)] for name, size in rows], right=True)


def _options(e: Estimate) -> str:
    said = {None: "", True: "fits", False: "too much"}
    rows = [
        [
            str(o.micro_batch_size),
            "yes" if o.activation_checkpointing else "no",
            _gib(o.holding.total),
            said[o.fits],
        ]
        for o in e.options
    ]
    last = "" if e.memory is None else f"in {_gib(e.memory)} GiB"
    return table(["micro_batch_size", "activation_checkpointing", "GiB a rank", last], rows, right=True)


def _traffic(e: Estimate) -> str:
    rows = [
        [PARALLELISMS[name], *(_parts(traffic) if traffic else ["not for this design", "", "", ""])]
        for name, traffic in e.traffic.items()
    ]
    head = [f"GiB a rank receives in a step (groups of {e.group})", "parameters", "gradients", "activations"]
    return table([*head, "together"], rows, right=True)


def _paper(e: Estimate) -> str:
    rows = [
        [PARALLELISMS[name], *(_gib(sizes.total) if (sizes := by[name]) else "–" for by in e.paper.values())]
        for name in PARALLELISMS
    ]
    counts = [f"{gpus:,} GPUs" for gpus in e.paper]
    return table(["the same, one micro-batch a step, groups of 8", *counts], rows, right=True)


def _parts(traffic: Traffic) -> list[str]:
    return [
        _gib(size) for size in (traffic.parameters, traffic.gradients, traffic.activations, traffic.total)
    ]


def _gib(size: float) -> str:
    return f"{size / GIB:,.2f}"
