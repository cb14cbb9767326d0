"""One optimizer step: read a batch, add up the gradients of its micro-batches, clip, and step.

Axes: B instances, L tokens.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from loriini.common.hardware import Precision, autocast, autocast_dtype, peak_flops, peak_memory
from loriini.common.json_file import without_nan
from loriini.data.batches.loader import BatchLoader
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.parallel.mesh import SINGLE_PROCESS, Parallel
from loriini.parallel.sharding import reduce_gradients
from loriini.routing import Routing
from loriini.routing.losses import Average
from loriini.routing.unit import units_of_rows
from loriini.train.balance import update_balance_bias
from loriini.train.config import TrainConfig
from loriini.train.guard import largest_norm, with_norm
from loriini.train.low_precision import experts_cast_once
from loriini.train.optimizer import learning_rate_factor, set_learning_rate, take_step
from loriini.train.records.expert_use import ExpertUse, add_totals, add_up, expert_metrics, expert_use
from loriini.train.records.trackers import WatchConfig
from loriini.train.run_progress import RunProgress


@dataclass
class TrainingState:
    """What changes while a run trains."""

    model: LoriiniForCausalLM
    optimizer: torch.optim.AdamW
    progress: RunProgress
    parallel: Parallel = SINGLE_PROCESS
    flops_per_token: float | None = None
    """The model's FLOPs for a token, counted once; None: not counted."""
    finished: float = 0.0
    """When the metrics of the last step arrived, by `time.perf_counter`."""


class Batch(NamedTuple):
    """This process's share of a batch, on the training device."""

    tokens_BL: Tensor
    """Instances (B, L+1)."""
    labels_B: Tensor | None = None
    """Each instance's label, if the run routes by label."""
    positions_BL: Tensor | None = None
    """Each token's position in its document (B, L+1), if documents are kept apart."""

    def rows(self, here: slice) -> "Batch":
        """The part of the batch in these rows."""
        return self._replace(**{name: x[here] for name, x in self._asdict().items() if x is not None})


Reader = Callable[[int], tuple[Batch, int]]
"""Reads the batch after `consumed` instances; returns it and how many instances are consumed with it."""


def read_batch(
    run: TrainConfig, batches: BatchLoader, device: torch.device, consumed: int
) -> tuple[Batch, int]:
    """The batch after `consumed` instances, on the device, and where the next begins."""
    tokens, instances_B, following = batches.at(consumed)
    source = batches.instances
    batch = Batch(
        to_device(tokens[:, : run.length + 1], device),
        to_device(source.labels(instances_B), device) if run.label_names(source) else None,
        to_device(source.positions(instances_B)[:, : run.length + 1], device) if run.document_mask else None,
    )
    return batch, following


def to_device(values: NDArray[np.int64], device: torch.device) -> Tensor:
    """An array on a device; a GPU copies it while it computes."""
    tensor = torch.from_numpy(values)
    if device.type == "cpu":
        return tensor
    with torch.cuda.device(device):  # the current device is per thread, by default GPU 0
        return tensor.pin_memory().to(device, non_blocking=True)


class StepLosses(NamedTuple):
    """Mean losses over a batch, float64 scalars."""

    cross_entropy: Tensor
    auxiliary: Tensor
    """All auxiliary losses together."""
    output_z: Tensor
    """The z-loss of the output logits."""


class StepOutcome(NamedTuple):
    """What an optimizer step measured, on the training device until it is fetched."""

    losses: StepLosses
    use: ExpertUse
    norm: Tensor
    """The gradient norm before clipping, a scalar."""
    taken: Tensor
    """Whether the step was taken rather than skipped, a scalar."""


def flatten(tensors: Iterable[Tensor]) -> Tensor:
    """The numbers of all tensors as one vector, float64."""
    return torch.cat([tensor.double().flatten() for tensor in tensors])


def unflatten(values: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Undo `flatten`: split a vector into tensors of the shapes of `like`, in float64."""
    parts = values.split([tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


@dataclass(frozen=True)
class StartedStep:
    """A step that a GPU may still be computing, and what its metrics need."""

    number: int
    tokens: int
    config: LoriiniConfig
    flops_per_token: float | None
    learning_rate: float
    started: float
    outcome: Callable[[], StepOutcome]
    """Waits for the outcome and returns it; the next step can be started before that."""


def fetch(outcome: StepOutcome) -> Callable[[], StepOutcome]:
    """Send an outcome to the CPU in one transfer; only the returned function waits for it."""
    parts, structure = tree_flatten(outcome)
    values = flatten(parts).to("cpu", non_blocking=True)  # into pinned memory
    arrived = torch.cuda.current_stream().record_event() if outcome.taken.is_cuda else None

    def wait() -> StepOutcome:
        if arrived is not None:
            arrived.synchronize()
        fetched: StepOutcome = tree_unflatten(unflatten(values, parts), structure)
        return fetched

    return wait


def start_step(state: TrainingState, run: TrainConfig, read: Reader) -> StartedStep:
    """Start one optimizer step; it updates everything in `state` except what `finish_step` does.

    The host waits for the device only with packed rows, labels, random routers, and selections of a varying
    number of experts.
    """
    started, before = time.perf_counter(), state.progress
    batch, consumed = read(before.consumed)
    outcome = optimizer_step(state, run, batch)
    tokens = before.tokens + run.batch_size * run.length
    state.progress = replace(before, step=before.step + 1, consumed=consumed, tokens=tokens)
    rate = state.optimizer.param_groups[0]["lr"]
    return StartedStep(
        before.step + 1, tokens, state.model.config, state.flops_per_token, rate, started, fetch(outcome)
    )


def finish_step(state: TrainingState, run: TrainConfig, step: StartedStep) -> dict[str, Any]:
    """Wait for a started step; add its skip, norm and use of experts to `state`, and return its metrics."""
    outcome = step.outcome()
    now = time.perf_counter()
    seconds, state.finished = now - max(step.started, state.finished), now
    taken, progress = bool(outcome.taken), state.progress
    totals = progress.expert_totals
    if taken:
        totals = add_totals(totals, outcome.use, run.routing)
    recorded = totals if step.number % run.per_expert_every == 0 else ()
    state.progress = replace(
        progress,
        skips=0 if taken else progress.skips + 1,
        norms=with_norm(progress.norms, outcome.norm.item()),
        expert_totals=() if recorded else totals,
    )
    speed = run.batch_size * run.length / seconds
    return {
        **loss_metrics(step, outcome),
        **throughput(step.flops_per_token, run.watch, speed, state.parallel.world_size),
        **expert_metrics(outcome.use, run.routing, recorded),
    }


def training_step(state: TrainingState, run: TrainConfig, read: Reader) -> dict[str, Any]:
    """Take one optimizer step, wait for it, and return its metrics."""
    return finish_step(state, run, start_step(state, run, read))


def optimizer_step(state: TrainingState, run: TrainConfig, batch: Batch) -> StepOutcome:
    """Change the weights and the optimizer's state by one step on this batch."""
    set_learning_rate(state.optimizer, learning_rate_factor(run.optimizer, state.progress.step, run.steps))
    state.model.model.begin_step()
    with experts_cast_once(state.model, autocast_dtype(run.precision)):
        losses, use = accumulate_gradients(state.model, batch, run, state.parallel)
    largest = largest_norm(run.guard.spike, state.progress.norms)
    norm, taken = take_step(state.model, state.optimizer, run.optimizer.clip, losses.cross_entropy, largest)
    update_balance_bias(state.model, use.choices, taken)
    state.optimizer.zero_grad(set_to_none=True)
    return StepOutcome(losses, use, norm, taken)


def loss_metrics(step: StartedStep, outcome: StepOutcome) -> dict[str, Any]:
    """The metrics of a step without its speed and its use of experts."""
    losses = outcome.losses
    return {
        "step": step.number,
        "loss": without_nan(losses.cross_entropy.item()),
        "tokens": step.tokens,
        "auxiliary_loss": without_nan(losses.auxiliary.item()),
        **({"output_z_loss": without_nan(losses.output_z.item())} if step.config.output_z else {}),
        "gradient_norm": without_nan(outcome.norm.item()),
        "learning_rate": step.learning_rate,
        "experts": step.config.num_experts,
        "skipped": not outcome.taken,
    }


def throughput(
    flops_per_token: float | None, config: WatchConfig, rate: float, devices: int
) -> dict[str, Any]:
    """Speed and memory of training at `rate` tokens a second on all `devices` together.

    `mfu` is the model's FLOPs as a fraction of the devices' peak; None where either is unknown.
    """
    peak = config.peak_flops or peak_flops()
    return {
        "tokens_per_second": rate,
        "mfu": flops_per_token * rate / (peak * devices) if flops_per_token and peak else None,
        "peak_memory_bytes": peak_memory(),
    }


def accumulate_gradients(
    model: LoriiniForCausalLM, batch: Batch, run: TrainConfig, parallel: Parallel = SINGLE_PROCESS
) -> tuple[StepLosses, ExpertUse]:
    """Forward and backward over micro-batches; returns losses and the experts' use, both on the device.

    Over all processes, losses and gradients are means and the experts' use is a sum. Auxiliary losses are
    weighted by units, the others by targets.
    """
    batch_size = len(batch.tokens_BL)
    size = run.instances_at_once(batch_size)
    targets_B = target_weights(batch, model.config, parallel)
    units_B = unit_weights(batch, model.config, parallel)
    losses = torch.zeros(len(StepLosses._fields), dtype=torch.float64, device=batch.tokens_BL.device)
    uses: list[ExpertUse] = []
    for first in range(0, batch_size, size):
        here = slice(first, first + size)
        target_weight, unit_weight = targets_B[here].sum(), units_B[here].sum()
        loss, parts, routings = forward(model, batch.rows(here), run.precision, parallel.mean)
        reduce_gradients(model, first + size >= batch_size or not run.parallel.reduce_once)
        beyond = unit_weight - target_weight  # auxiliary losses are in the loss already
        weighed = loss * target_weight + parts.auxiliary * beyond
        (weighed / parallel.world_size).backward()
        weights = torch.stack(StepLosses(target_weight, unit_weight, target_weight))
        losses = losses + weights * torch.stack(parts).detach()
        uses.append(expert_use(routings))
    sums = [losses, *add_up(uses)]
    total, *use = unflatten(parallel.sum(flatten(sums)), sums)
    return StepLosses(*total / parallel.world_size), ExpertUse(*use)


def forward(
    model: LoriiniForCausalLM, batch: Batch, precision: Precision, average: Average
) -> tuple[Tensor, StepLosses, tuple[Routing, ...]]:
    """The loss of a batch for the backward pass, its parts, and each layer's decisions."""
    positions_BL = batch.positions_BL
    with autocast(precision):
        out = model(
            batch.tokens_BL[:, :-1],
            position_ids=None if positions_BL is None else positions_BL[:, :-1],
            shift_labels=batch.tokens_BL[:, 1:],
            routing_labels=batch.labels_B if model.config.routed_by_label else None,  # not in a dense warm-up
            skip_logits=True,
            average=average,
        )
    zero = torch.zeros_like(out.cross_entropy)
    auxiliary = zero if out.auxiliary_loss is None else out.auxiliary_loss
    output_z = zero if out.output_z_loss is None else out.output_z_loss
    return out.loss, StepLosses(out.cross_entropy, auxiliary, output_z), out.routings


def target_weights(batch: Batch, config: LoriiniConfig, parallel: Parallel) -> Tensor:
    """Each instance's number of targets that count, divided by the mean of a process (B,), float64.

    Where the loss leaves out segment 1 of every document, more documents mean fewer targets.
    """
    skipped = config.skipped_positions
    if batch.positions_BL is None or not skipped:
        return equal_weights(batch)
    return over_mean((batch.positions_BL[:, :-1] >= skipped).sum(1), parallel)


def unit_weights(batch: Batch, config: LoriiniConfig, parallel: Parallel) -> Tensor:
    """Each instance's number of units, divided by the mean of a process (B,), float64.

    Where documents are kept apart, more documents mean more segments and sequences.
    """
    design = config.design
    if batch.positions_BL is None or design.unit == "token" or not design.loss_weights:
        return equal_weights(batch)
    return over_mean(units_of_rows(design, batch.positions_BL[:, :-1]), parallel)


def equal_weights(batch: Batch) -> Tensor:
    """Equal weights (B,), float64, that sum to 1."""
    B = len(batch.tokens_BL)
    return batch.tokens_BL.new_full((B,), 1 / B, dtype=torch.float64)


def over_mean(counts_B: Tensor, parallel: Parallel) -> Tensor:
    """Each instance's count, divided by the mean over processes of the sum of counts (B,), float64."""
    return counts_B.double() / parallel.mean(counts_B.sum().double()).clamp(min=1)
