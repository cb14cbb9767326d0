"""An estimate as tables."""

from loriini.cli.output import format_table
from loriini.estimate.communication import Traffic
from loriini.estimate.estimate import GIB, Estimate, Option

PARALLELISMS = {
    "fsdp": "FSDP",
    "expert_parallel": "expert parallelism",
    "expert_wise": "expert-wise parallelism",
}
ASSUMED_MFU = 0.4
"""Model FLOPs utilisation, the share of a device's peak that good training reaches."""


def estimate_text(estimate: Estimate) -> str:
    """An estimate's tables: memory, settings that fit, communication."""
    own = estimate.options[0]
    return "\n\n".join(
        [_head(estimate), _memory(own), _options(estimate), _traffic(estimate), _by_gpus(estimate)]
    )


def _head(e: Estimate) -> str:
    lines = [
        f"{e.name} on {e.gpus} {'GPU' if e.gpus == 1 else 'GPUs'}",
        f"parameters {e.parameters_total:,}, active for a token {e.parameters_active:,}",
        f"{e.flops_per_token / 1e9:,.2f} GFLOP a token, {e.flops_per_step / 1e12:,.1f} TFLOP a step of "
        f"{e.tokens_per_step:,} tokens",
    ]
    if e.peak_flops:
        rate = ASSUMED_MFU * e.peak_flops * e.gpus / e.flops_per_token
        lines.append(
            f"at an MFU of {ASSUMED_MFU:.0%}: {rate:,.0f} tokens/s, {e.tokens_per_step / rate:,.2f} s a step"
        )
    return "\n".join(lines)


def _memory(own: Option) -> str:
    held = own.holding
    rows = [
        ("parameters, float32", held.parameters),
        ("gradients", held.gradients),
        ("optimizer state", held.optimizer),
        ("weights gathered or cast", held.gathered),
        ("activations", held.activations),
        ("  merged experts among them", held.merged),
        ("transient gradients", held.working),
        ("total", held.total),
    ]
    return format_table(["memory of a rank", "GiB"], [[name, _gib(x)] for name, x in rows], align_right=True)


def _options(e: Estimate) -> str:
    verdict = {None: "", True: "fits", False: "too much"}
    rows = [
        [
            str(o.micro_batch_size),
            "yes" if o.activation_checkpointing else "no",
            _gib(o.holding.total),
            verdict[o.fits],
        ]
        for o in e.options
    ]
    last = "" if e.memory is None else f"in {_gib(e.memory)} GiB"
    head = ["micro_batch_size", "activation_checkpointing", "GiB a rank", last]
    return format_table(head, rows, align_right=True)


def _traffic(e: Estimate) -> str:
    rows = [
        [PARALLELISMS[name], *(_sizes(traffic) if traffic else ["not for this design", "", "", ""])]
        for name, traffic in e.traffic.items()
    ]
    head = [f"GiB a rank receives in a step (groups of {e.group})", "parameters", "gradients", "activations"]
    return format_table([*head, "total"], rows, align_right=True)


def _by_gpus(e: Estimate) -> str:
    rows = [
        [PARALLELISMS[name], *(_gib(sizes.total) if (sizes := by[name]) else "–" for by in e.paper.values())]
        for name in PARALLELISMS
    ]
    counts = [f"{gpus:,} GPUs" for gpus in e.paper]
    head = ["the same with one micro-batch a step, groups of 8", *counts]
    return format_table(head, rows, align_right=True)


def _sizes(traffic: Traffic) -> list[str]:
    sizes = (traffic.parameters, traffic.gradients, traffic.activations, traffic.total)
    return [_gib(size) for size in sizes]


def _gib(size: float) -> str:
    return f"{size / GIB:,.2f}"
