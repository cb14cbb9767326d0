"""One optimizer step: read a batch, add up the gradients of its micro-batches, clip, and step.

Axes: B instances, L tokens.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loriini.batches.loader import BatchLoader, Position
from loriini.hardware import autocast, autocast_dtype, peak_flops, peak_memory
from loriini.json_file import without_nan
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.low_precision import experts_cast_once
from loriini.parallel.mesh import SINGLE_PROCESS, Parallel
from loriini.parallel.sharding import reduce_gradients
from loriini.routing.design import AUXILIARY_LOSSES
from loriini.routing.unit import units_of_rows
from loriini.train.balance import update_balance_bias
from loriini.train.guard import largest_norm, with_norm
from loriini.train.optimizer import learning_rate_factor, set_learning_rate, take_step
from loriini.train.records.expert_use import ExpertUse, add_amounts, add_up, expert_metrics, expert_use
from loriini.train.records.trackers import WatchConfig
from loriini.train.run import Run
from loriini.train.run_progress import RunProgress


@dataclass
class TrainingState:
    """What changes while a run trains."""

    model: LoriiniForCausalLM
    optimizer: torch.optim.AdamW
    progress: RunProgress
    parallel: Parallel = SINGLE_PROCESS


@dataclass(frozen=True)
class Batch:
    """This process's share of a batch, on the training device."""

    tokens_BL: Tensor
    """Instances (B, L+1)."""
    labels_B: Tensor | None = None
    """Where the run routes by label."""
    positions_BL: Tensor | None = None
    """Each token's position in its document (B, L+1), where documents are kept apart."""


Reader = Callable[[Position], tuple[Batch, Position]]
"""Reads the batch at a position; returns it and the next position."""


def read_batch(
    run: Run, batches: BatchLoader, device: torch.device, position: Position
) -> tuple[Batch, Position]:
    """The batch at `position` on the device, and the position of the next."""
    tokens, instances_B, following = batches.at(position)
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
    with torch.cuda.device(device):  # which is a thread's own: another than the first must be named in each
        return tensor.pin_memory().to(device, non_blocking=True)


def training_step(state: TrainingState, run: Run, read: Reader) -> dict[str, Any]:
    """Take one optimizer step, which updates `state`, and return its metrics.

    Without packed rows, labels, random routers, selections of any number of experts and shards, nothing waits
    for the device before the step is taken; one transfer then brings all metrics.
    """
    started = time.perf_counter()
    batch, position = read(Position(state.progress.consumed))
    set_learning_rate(state.optimizer, learning_rate_factor(run.optimizer, state.progress.step, run.steps))
    state.model.model.begin_step()
    with experts_cast_once(state.model, autocast_dtype(run.precision)):
        losses, use = accumulate_gradients(state.model, batch, run, state.parallel)
    largest = largest_norm(run.guard.spike, state.progress.norms)
    norm, taken = take_step(
        state.model, state.optimizer, run.optimizer.clip, losses[0], state.parallel, largest
    )
    update_balance_bias(state.model, use, taken)
    state.optimizer.zero_grad(set_to_none=True)
    scalars = torch.stack([*losses, norm.double(), taken.double()])
    values = torch.cat([scalars, use.flat()]).cpu()
    (loss, auxiliary, z_loss, norm_here, was_taken), use = values[:5].tolist(), use.like(values[5:])
    tokens = run.batch_size * run.length
    speed = tokens / (time.perf_counter() - started)
    before, step = state.progress.amounts, state.progress.step + 1
    amounts = add_amounts(before, use, run.routing) if was_taken else before
    recorded = step % run.per_expert_every == 0
    state.progress = RunProgress(
        step=step,
        consumed=position.consumed,
        tokens=state.progress.tokens + tokens,
        skips=0 if was_taken else state.progress.skips + 1,
        amounts=() if recorded else amounts,
        norms=with_norm(state.progress.norms, norm_here),
    )
    return {
        "step": step,
        "loss": without_nan(loss),
        "tokens": state.progress.tokens,
        "auxiliary_loss": without_nan(auxiliary),
        **({"output_z_loss": without_nan(z_loss)} if state.model.config.output_z else {}),
        "gradient_norm": without_nan(norm_here),
        "learning_rate": state.optimizer.param_groups[0]["lr"],
        "experts": state.model.config.num_experts,
        "skipped": not was_taken,
        **throughput(state.model.config, run.watch, run.length, speed, state.parallel.world_size),
        **expert_metrics(use, run.routing, amounts if recorded else ()),
    }


def throughput(
    model: LoriiniConfig, config: WatchConfig, length: int, rate: float, devices: int
) -> dict[str, Any]:
    """Speed and memory of training at `rate` tokens a second on all `devices` together.

    `mfu` is the model's FLOPs as a fraction of the devices' peak; None where that is unknown.
    """
    peak = config.peak_flops or peak_flops()
    return {
        "tokens_per_second": rate,
        "mfu": model.flops_per_token(length) * rate / (peak * devices) if peak else None,
        "peak_memory_bytes": peak_memory(),
    }


def accumulate_gradients(
    model: LoriiniForCausalLM, batch: Batch, run: Run, parallel: Parallel = SINGLE_PROCESS
) -> tuple[Tensor, ExpertUse]:
    """Backward over micro-batches; returns mean losses (3,) and the experts' use.

    The losses are the cross-entropy, the auxiliary losses and the z-loss of output logits, float64 on the
    device. They are means and sums over all processes, and so are the gradients once the step is taken:
    auxiliary losses weigh as their units, the others as their targets.
    """
    batch_size = len(batch.tokens_BL)
    size = run.instances_at_once(batch_size)
    labels_B = batch.labels_B if model.config.routed_by_label else None  # the dense warm-up asks for none
    targets_B = target_weights(batch, model.config, parallel)
    units_B = unit_weights(batch, model.config, parallel)
    losses = torch.zeros(3, dtype=torch.float64, device=batch.tokens_BL.device)
    uses: list[ExpertUse] = []
    for first in range(0, batch_size, size):
        here = slice(first, first + size)
        tokens_BL = batch.tokens_BL[here]
        share = len(tokens_BL) / batch_size
        target_weight = share if targets_B is None else targets_B[here].sum()
        unit_weight = share if units_B is None else units_B[here].sum()
        with autocast(run.precision):
            out = model(
                tokens_BL[:, :-1],
                position_ids=None if batch.positions_BL is None else batch.positions_BL[here, :-1],
                shift_labels=tokens_BL[:, 1:],
                routing_labels=None if labels_B is None else labels_B[here],
                skip_logits=True,
                average=parallel.mean,
            )
        routings, loss, cross_entropy = out.routings, out.loss, out.cross_entropy.detach()
        none = torch.zeros_like(cross_entropy)
        added, z_loss = (none if each is None else each for each in (out.auxiliary_loss, out.output_z_loss))
        del out  # with the logits
        reduce_gradients(model, first + size >= batch_size or not run.parallel.reduce_once)
        beyond = unit_weight - target_weight  # auxiliary losses are in the loss already
        (loss * (target_weight / parallel.world_size) + added * (beyond / parallel.world_size)).backward()
        weighed = [target_weight * cross_entropy, unit_weight * added.detach(), target_weight * z_loss]
        losses = losses + torch.stack(weighed)
        uses.append(expert_use(routings))
    use = add_up(uses)
    total = parallel.sum(torch.cat([losses, use.flat()]))
    return total[:3] / parallel.world_size, use.like(total[3:])


def target_weights(batch: Batch, config: LoriiniConfig, parallel: Parallel) -> Tensor | None:
    """Each instance's targets that count, over a process's mean number (B,); None where all have as many.

    Where the loss leaves out segment 1 of every document, they are the fewer the more documents there are.
    """
    skipped = config.skipped_positions
    if batch.positions_BL is None or not skipped:
        return None
    return over_mean((batch.positions_BL[:, :-1] >= skipped).sum(1), parallel)


def unit_weights(batch: Batch, config: LoriiniConfig, parallel: Parallel) -> Tensor | None:
    """Each instance's units, over a process's mean number (B,); None where all have as many.

    Where documents are kept apart, the more documents there are, the more segments and sequences.
    """
    design = config.effective_routing
    weighed = any(getattr(design, name) for name in AUXILIARY_LOSSES)
    if batch.positions_BL is None or design.unit == "token" or not weighed:
        return None
    return over_mean(units_of_rows(design, batch.positions_BL[:, :-1]), parallel)


def over_mean(counts_B: Tensor, parallel: Parallel) -> Tensor:
    """Each instance's counts over the mean over processes of their sum (B,), float64."""
    return counts_B.double() / parallel.mean(counts_B.sum().double()).clamp(min=1)
