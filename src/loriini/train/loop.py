"""The training loop: a dense warm-up first where a run has one, then the mixture; resumed exactly."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loriini.batches.loader import BatchLoader, Position, ReadAhead
from loriini.errors import Unfinished
from loriini.hardware import autocast, autocast_dtype, keep_freed_memory, pick_device, resolve_precision
from loriini.jobs.lock import folder_lock
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.loss import skipped_positions
from loriini.model.low_precision import experts_cast_once
from loriini.parallel.mesh import SINGLE_PROCESS, Parallel, join_mesh, on_first_rank, process_group
from loriini.parallel.sharding import build_model, gather_model, reduce_gradients
from loriini.progress import inform, progress, warn
from loriini.routing import causality_warning
from loriini.train.balance import update_balance_bias
from loriini.train.checkpoint import CheckpointWriter, restore
from loriini.train.checkpoint_state import RunProgress
from loriini.train.corpora import TrainingCorpus, model_config
from loriini.train.folder import claim_run, make_folder, own_checkpoint, save_model
from loriini.train.guard import too_many_skips, write_skipped
from loriini.train.initial import InitialModel
from loriini.train.interrupt import Interrupted, deferred_interrupts
from loriini.train.measures import Measure, measure_all, rewind_all
from loriini.train.metrics import METRICS, ExpertUse, add_amounts, add_up, expert_metrics, expert_use, rewind
from loriini.train.optimizer import learning_rate_factor, make_optimizer, set_learning_rate, take_step
from loriini.train.run import RUN, Run
from loriini.train.speed import check_compiler, speed_up
from loriini.train.upcycle import upcycle
from loriini.train.watch import check_trackers, recording, throughput


@dataclass
class TrainingState:
    """What changes while a run trains."""

    model: LoriiniForCausalLM
    optimizer: torch.optim.AdamW
    progress: RunProgress
    parallel: Parallel = SINGLE_PROCESS


def train(
    run: Run,
    corpus: TrainingCorpus,
    out: Path,
    measures: Sequence[Measure] = (),
    minutes: float = math.inf,
) -> Path:
    """Train `run` into the folder `out`, from its last checkpoint if there is one; returns `out/model`.

    Values still `auto` (see `loriini.estimate.choice`) mean one micro-batch, with merged weights kept, and
    the precision that suits this device.
    Raises InputError when `out` holds another run or another process is training it, Interrupted after
    SIGINT or SIGTERM, and Unfinished when `minutes` pass before the run is finished; both save first, after
    the last step the final model.
    """
    run = run.chosen(micro_batch_size=0, recompute_merge=False)
    run = replace(run, precision=resolve_precision(run.precision))
    deadline = time.monotonic() + 60 * minutes
    check_trackers(run.watch.trackers)
    check_compiler(run.speed)
    with process_group(), ExitStack() as stack:
        initial = InitialModel(run.init, run.length) if run.init else None
        if initial:
            on_first_rank(lambda: check_initial(initial, run, corpus, out))
        on_first_rank(lambda: make_folder(run, corpus, out))
        on_first_rank(lambda: stack.enter_context(folder_lock(out)))
        heldout_digest = next((each.digest for each in measures if each.digest), None)
        if on_first_rank(lambda: claim_run(run, corpus, out, heldout_digest)):
            return out / "model"
        keep_freed_memory()
        state = start_or_resume(run, corpus, out, initial)
        on_first_rank(lambda: rewind_files(measures, state.progress.step, out))
        return train_to_end(state, run, corpus, out, measures, deadline)


def train_to_end(
    state: TrainingState,
    run: Run,
    corpus: TrainingCorpus,
    out: Path,
    measures: Sequence[Measure],
    deadline: float,
) -> Path:
    """Take the remaining steps, record each, and save the final model."""
    parallel = state.parallel
    files = out if parallel.first else None
    warning = causality_warning(run.config(1, 0).effective_routing, training=True)
    if parallel.first and warning:
        warn(warning)
    batches = BatchLoader(corpus.instances, run.batch_size, run.seed, parallel.rank, parallel.world_size)
    with (
        deferred_interrupts() as interrupted,
        recording(run.watch, run.name, run.to_dict(), files, state.progress.step) as record,
        progress(run.name, run.steps, shown=parallel.first) as advance,
        CheckpointWriter(out / "checkpoints", run.checkpoint.keep, parallel, run.to_dict()) as checkpoints,
        ReadAhead(partial(read_batch, run, batches, pick_device())) as read,
    ):
        advance(state.progress.step)
        if parallel.first and state.progress.step:
            inform(f"{run.name}: resumed after step {state.progress.step} of {run.steps}")
        while state.progress.step < run.steps:
            if step_copies(state, run):
                copy_dense(state, run, corpus)
            position = Position(state.progress.consumed)
            metrics = training_step(state, run, read)
            step = state.progress.step
            results = measure_all(measures, state.model, step, run.steps, files)
            record(metrics, results.entries)
            advance(1, loss_and_speed(metrics))
            if parallel.first and results.score is not None:
                inform(f"held-out perplexity {results.score:.2f}, mean over domains, after step {step}")
            if metrics["skipped"]:
                write_skipped(out, step, batches, position, run.length, run.document_mask)
            gives_up = state.progress.skips >= run.guard.max_skips
            stopped = parallel.any(interrupted())
            late = deadline < math.inf and parallel.any(time.monotonic() > deadline)
            due = run.checkpoint.every and (step % run.checkpoint.every == 0 or step == run.steps)
            if stopped or late or due or gives_up or results.score is not None:
                checkpoints.save(state.model, state.optimizer, state.progress, results.score)
            if gives_up:
                raise too_many_skips(out, step, state.progress.skips)
            if stopped or (late and step < run.steps):
                message = f"saved after step {step} of {run.steps}; run the same command again to resume"
                raise (Interrupted if stopped else Unfinished)(f"{out}: {message}")
        checkpoints.wait()  # it then drops an old one: room for the model
        if (model := gather_model(state.model, parallel)) is not None:
            save_model(model, corpus, out)
            if interrupted():
                raise Interrupted(f"{out}: the run is finished")
    return out / "model"


def loss_and_speed(metrics: dict[str, Any]) -> str:
    """A step's loss and speed, for the progress bar."""
    loss = "not finite" if metrics["loss"] is None else f"{metrics['loss']:.3f}"
    return f"loss {loss}  {metrics['tokens_per_second']:,.0f} tokens/s"


def rewind_files(measures: Sequence[Measure], step: int, out: Path) -> None:
    """Drop the records of steps after `step`, which are taken again."""
    rewind(out / METRICS, step)
    rewind_all(measures, step, out)


def check_initial(initial: InitialModel, run: Run, corpus: TrainingCorpus, out: Path) -> None:
    """Read a new run's initial model before anything is written. InputError where the run cannot start."""
    if not (out / RUN).exists():
        initial.check_vocabulary(corpus)
        initial.check_labels(run.label_names(corpus.instances))
        initial.load()


def start_or_resume(
    run: Run, corpus: TrainingCorpus, out: Path, initial: InitialModel | None = None
) -> TrainingState:
    """The state of the newest intact checkpoint, or a new one with the weights that the run starts from."""
    parallel = join_mesh(run.parallel)
    found = on_first_rank(lambda: own_checkpoint(run, out))
    at = found[1] if found else RunProgress()
    make: Callable[[LoriiniConfig], LoriiniForCausalLM] = LoriiniForCausalLM
    if run.init and not found:
        initial = initial or InitialModel(run.init, run.length)
        on_first_rank(partial(initial.load, run.init_digest))
        make = initial.in_design
    torch.manual_seed(run.seed + parallel.rank)  # rank 0 draws the weights for all
    config = model_config(run, corpus, 1 if run.is_dense_at(at.step) else None)
    model = build_model(config, parallel, run.precision, make)
    speed_up(model, run.speed)
    optimizer = make_optimizer(model, run.optimizer)
    if found:
        restore(found[0], model, optimizer, parallel)
    else:
        model.model.start_draws(run.seed)
    return TrainingState(model, optimizer, at, parallel)


def step_copies(state: TrainingState, run: Run) -> bool:
    """Whether the dense model is to be copied into experts before the next step."""
    return state.progress.step == run.copy_step and state.model.config.num_experts < run.model.num_experts


def copy_dense(state: TrainingState, run: Run, corpus: TrainingCorpus) -> None:
    """End the dense warm-up: the model and its optimizer become the mixture's."""
    config = model_config(run, corpus)
    state.model, state.optimizer = upcycle(
        state.model, state.optimizer, config, run.optimizer, run.warmup, state.parallel, run.precision
    )
    speed_up(state.model, run.speed)


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
        loss, auxiliary, use = accumulate_gradients(state.model, batch, run, state.parallel)
    norm, taken = take_step(state.model, state.optimizer, run.optimizer.clip, loss, state.parallel)
    update_balance_bias(state.model, use, taken)
    state.optimizer.zero_grad(set_to_none=True)
    scalars = torch.stack([loss, auxiliary, norm.double(), taken.double()])
    values = torch.cat([scalars, use.flat()]).cpu()
    (loss_here, auxiliary_here, norm_here, finite), use = values[:4].tolist(), use.like(values[4:])
    tokens = run.batch_size * run.length
    speed = tokens / (time.perf_counter() - started)
    before, step = state.progress.amounts, state.progress.step + 1
    amounts = add_amounts(before, use, run.routing) if finite else before
    recorded = step % run.per_expert_every == 0
    state.progress = RunProgress(
        step=step,
        consumed=position.consumed,
        tokens=state.progress.tokens + tokens,
        skips=0 if finite else state.progress.skips + 1,
        amounts=() if recorded else amounts,
    )
    return {
        "step": step,
        "loss": loss_here if math.isfinite(loss_here) else None,
        "tokens": state.progress.tokens,
        "auxiliary_loss": auxiliary_here if math.isfinite(auxiliary_here) else None,
        "gradient_norm": norm_here if finite else None,
        "learning_rate": state.optimizer.param_groups[0]["lr"],
        "experts": state.model.config.num_experts,
        "skipped": not finite,
        **throughput(state.model.config, run.watch, run.length, speed, state.parallel.world_size),
        **expert_metrics(use, run.routing, amounts if recorded else ()),
    }


def accumulate_gradients(
    model: LoriiniForCausalLM, batch: Batch, run: Run, parallel: Parallel = SINGLE_PROCESS
) -> tuple[Tensor, Tensor, ExpertUse]:
    """Backward over micro-batches; returns mean cross-entropy, mean auxiliary loss, and the experts' use.

    The losses are float64 scalars on the device. They are means and sums over all processes, and so are the
    gradients once the step is taken: cross-entropies weigh as their targets, auxiliary losses as instances.
    """
    batch_size = len(batch.tokens_BL)
    size = run.instances_at_once(batch_size)
    labels_B = batch.labels_B if model.config.routed_by_label else None  # the dense warm-up asks for none
    weights_B = target_weights(batch, model.config, parallel)
    cross_entropy = auxiliary = torch.zeros((), dtype=torch.float64, device=batch.tokens_BL.device)
    uses: list[ExpertUse] = []
    for first in range(0, batch_size, size):
        here = slice(first, first + size)
        tokens_BL = batch.tokens_BL[here]
        share = len(tokens_BL) / batch_size
        weight = share if weights_B is None else weights_B[here].sum()
        with autocast(run.precision):
            out = model(
                tokens_BL[:, :-1],
                position_ids=None if batch.positions_BL is None else batch.positions_BL[here, :-1],
                shift_labels=tokens_BL[:, 1:],
                routing_labels=None if labels_B is None else labels_B[here],
                skip_logits=True,
                average=parallel.mean,
            )
        routings, loss = out.routings, out.cross_entropy
        added = torch.zeros_like(loss) if out.auxiliary_loss is None else out.auxiliary_loss
        del out  # with the logits
        reduce_gradients(model, first + size >= batch_size or not run.parallel.reduce_once)
        (loss * (weight / parallel.world_size) + added * (share / parallel.world_size)).backward()
        cross_entropy = cross_entropy + weight * loss.detach()
        auxiliary = auxiliary + share * added.detach()
        uses.append(expert_use(routings))
    use = add_up(uses)
    total = parallel.sum(torch.cat([torch.stack([cross_entropy, auxiliary]), use.flat()]))
    return total[0] / parallel.world_size, total[1] / parallel.world_size, use.like(total[2:])


def target_weights(batch: Batch, config: LoriiniConfig, parallel: Parallel) -> Tensor | None:
    """Each instance's targets that count, over a process's mean number (B,); None where all have as many.

    Where the loss leaves out segment 1 of every document, they are the fewer the more documents there are.
    """
    skipped = skipped_positions(config)
    if batch.positions_BL is None or not skipped:
        return None
    targets_B = (batch.positions_BL[:, :-1] >= skipped).sum(1).double()
    return targets_B / parallel.mean(targets_B.sum()).clamp(min=1)
