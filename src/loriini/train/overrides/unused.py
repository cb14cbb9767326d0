"""Overrides that have no effect on the run that they are given for."""

from collections.abc import Callable, Iterable

from loriini.common.errors import InputError
from loriini.routing.design import HAS_EFFECT
from loriini.train.config import AUTO, TrainConfig
from loriini.train.overrides.names import setting_name

Needs = tuple[Callable[[TrainConfig], bool], str]
"""Whether a setting changes a run, and what it needs for that."""


def keeps_milestones(run: TrainConfig) -> bool:
    """Whether checkpoints are written at all multiples of `checkpoint.keep_every`."""
    written = (run.checkpoint.every, run.evaluate.every if run.evaluate.heldout else 0)
    return any(every and run.checkpoint.keep_every % every == 0 for every in written)


A_MIXTURE: Needs = (lambda run: run.is_mixture, "a mixture, --model.num_experts above 1")
A_LLAMA: Needs = (lambda run: run.model.block != "gpt2", "a block that is not gpt2")
HELDOUT: Needs = (lambda run: bool(run.evaluate.heldout), "held-out text, --heldout")

NEEDS: dict[str, Needs] = {
    "optimizer.decay": (
        lambda run: run.optimizer.schedule == "warmup_stable_decay",
        "--optimizer.schedule warmup_stable_decay",
    ),
    "optimizer.final_rate": (
        lambda run: run.optimizer.schedule != "constant",
        "a schedule that is not constant",
    ),
    "optimizer.router_rate": (
        lambda run: run.is_mixture and run.routing.trains_router,
        "a mixture with a router that is trained",
    ),
    "optimizer.expert_rate": A_MIXTURE,
    "per_expert_every": A_MIXTURE,
    "model.recompute_merge": (
        lambda run: (
            run.model.recompute_merge is not True
            or (run.is_mixture and run.routing.combination == "parameters")
        ),
        "a design that merges experts",
    ),
    "model.rope_theta": A_LLAMA,
    "model.rope_scaling": A_LLAMA,
    "model.rms_norm_eps": A_LLAMA,
    "model.layer_norm_epsilon": (lambda run: run.model.block == "gpt2", "--model.block gpt2"),
    "evaluate.on_error": HELDOUT,
    "evaluate.every": HELDOUT,
    "evaluate.instances": HELDOUT,
    "evaluate.skip": HELDOUT,
    "routing": (lambda run: run.is_mixture or run.routing.constant_gates, A_MIXTURE[1]),
    "warmup.dense_share": (
        lambda run: run.is_mixture or run.warmup.dense_share == 0,
        A_MIXTURE[1],
    ),
    "checkpoint.keep_every": (
        keeps_milestones,
        "a multiple of --checkpoint.every or, with --heldout, of --evaluate.every",
    ),
    "warmup.moments": (lambda run: run.copy_step > 0, "a dense warm-up, --warmup.dense_share above 0"),
    "parallel.share_experts": (lambda run: run.parallel.experts > 1, "--parallel.experts above 1"),
    "evaluate.prompt": (lambda run: run.evaluate.sample_every > 0, "--evaluate.sample_every above 0"),
    "evaluate.sample_tokens": (lambda run: run.evaluate.sample_every > 0, "--evaluate.sample_every above 0"),
    "watch.every": (lambda run: bool(run.watch.trackers), "a tracker, --watch.trackers"),
    "micro_batch_size": (
        lambda run: run.micro_batch_size == AUTO or run.micro_batch_size <= run.batch_size,
        "at most --batch_size",
    ),
}
FOR_ANY_DESIGN = ("segment_length",)
"""Fields of a design that are accepted where they change nothing, for commands that differ in the design."""


def refuse_unused(run: TrainConfig, flags: Iterable[str], processes: int) -> None:
    """InputError for an override in `flags` that has no effect on `run` in this many processes."""
    for flag in flags:
        if needed := _missing(run, setting_name(flag), processes):
            raise InputError(f"{flag} has no effect here: it needs {needed}; leave it out")


def _missing(run: TrainConfig, name: str, processes: int) -> str | None:
    """What a setting needs to change this run; None where it does."""
    section, _, field = name.rpartition(".")
    if section == "parallel" and processes == 1:
        value = getattr(run.parallel, field)
        if value is True or value not in (0, 1):
            return "several processes, started by torchrun"
    if name == "parallel.reduce_once" and run.parallel.reduce_once and run.micro_batch_size != AUTO:
        share = run.batch_size // processes
        if run.instances_at_once(share) == share:
            return "several micro-batches, --micro_batch_size below a process's share of --batch_size"
    if section == "routing" and field not in FOR_ANY_DESIGN:
        if not run.is_mixture:
            return A_MIXTURE[1]
        if field in HAS_EFFECT and not HAS_EFFECT[field](run.routing):
            return f"a design that uses {field}, and this one has {_choices(run)}"
    effective, needed = NEEDS.get(name, (None, ""))
    return needed if effective and not effective(run) else None


def _choices(run: TrainConfig) -> str:
    routing = run.routing
    return f"scorer={routing.scorer}, selection={routing.selection}, gates={routing.gates}"
