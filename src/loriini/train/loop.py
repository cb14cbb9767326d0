"""The training loop: a dense warm-up first where a run has one, then the mixture; resumed exactly."""

import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from loriini.common.errors import Unfinished
from loriini.common.folders import CHECKPOINTS, MODEL, RUN
from loriini.common.hardware import keep_freed_memory, pick_device
from loriini.common.progress import inform, progress, warn
from loriini.common.signals import Interrupted, deferred_interrupts
from loriini.data.batches.loader import BatchLoader, ReadAhead
from loriini.data.jobs.lock import folder_lock
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.parallel.mesh import join_mesh, on_first_rank
from loriini.parallel.sharding import build_model, gather_model
from loriini.routing.design import causality_warning, router_warning
from loriini.train.checkpoints.state import checkpoints_in, newest_intact_together, read_progress
from loriini.train.checkpoints.storage import CheckpointWriter, restore
from loriini.train.config import TrainConfig
from loriini.train.corpora import TrainingCorpus, model_config
from loriini.train.folder import (
    claim_run,
    keep_tokenizer,
    make_folder,
    own_checkpoint,
    report_finished,
    save_model,
)
from loriini.train.guard import skips_error
from loriini.train.initial import InitialModel
from loriini.train.measures import Measure
from loriini.train.optimizer import make_optimizer
from loriini.train.records.metrics import EVALUATION, METRICS, rewind
from loriini.train.records.tracing import profiled_steps, profiling
from loriini.train.records.trackers import recording
from loriini.train.run_progress import RunProgress
from loriini.train.speed import garbage_collected, speed_up
from loriini.train.step import StartedStep, TrainingState, finish_step, read_batch, start_step
from loriini.train.upcycle import upcycle


def train(
    run: TrainConfig,
    corpus: TrainingCorpus,
    out: str | Path,
    measure: Measure | None = None,
    deadline: float = math.inf,
) -> Path:
    """Train `run` into the folder `out`, from its last checkpoint if there is one; returns `out/model`.

    Called by all processes with what `preflight` returned; values still `auto` mean one micro-batch, with
    merged weights kept, and the precision that suits each device.
    Raises InputError if `out` holds another run, another process is training it, or too many steps are
    skipped; Interrupted after SIGINT, SIGTERM or SIGHUP; Unfinished if `time.monotonic()` passes `deadline`
    before the end. The last two save first: a checkpoint or, after the last step, the final model.
    """
    out = Path(out)
    with ExitStack() as stack:
        initial = InitialModel(run.init, run.init_optimizer) if run.init else None
        if initial:
            on_first_rank(lambda: check_initial(initial, run, corpus, out))
        on_first_rank(lambda: make_folder(run, corpus, out))
        on_first_rank(lambda: stack.enter_context(folder_lock(out)))
        heldout_digest = measure.digest if measure else None
        if on_first_rank(lambda: claim_run(run, corpus, out, heldout_digest)):
            return on_first_rank(lambda: report_finished(out))
        on_first_rank(lambda: keep_tokenizer(corpus, out))
        if pick_device().type == "cpu":  # on a GPU, checkpoints alone take much of the machine's memory
            keep_freed_memory()
        state = start_or_resume(run, corpus, out, initial)
        on_first_rank(lambda: rewind_records(state.progress.step, out))
        return train_to_end(state, run, corpus, out, measure, deadline)


def train_to_end(
    state: TrainingState,
    run: TrainConfig,
    corpus: TrainingCorpus,
    out: Path,
    measure: Measure | None,
    deadline: float,
) -> Path:
    """Take the remaining steps, record each, and save the final model."""
    parallel = state.parallel
    files = out if parallel.first else None
    config = run.config()
    warnings = (
        causality_warning(config.design, training=True),
        router_warning(config.design, config.num_experts),
    )
    for warning in filter(None, warnings if parallel.first else ()):
        warn(warning)
    batches = BatchLoader(corpus.instances, run.batch_size, run.seed, parallel.rank, parallel.world_size)
    lag = steps_ahead(run)
    started = deque[StartedStep]()
    with (
        deferred_interrupts() as interrupted,
        recording(run.watch, run.name, run.to_dict(), files, state.progress.step) as record,
        progress(run.name, run.steps, shown=parallel.first) as advance,
        CheckpointWriter(out / CHECKPOINTS, run.checkpoint, parallel, run.to_dict()) as checkpoints,
        ReadAhead(partial(read_batch, run, batches, pick_device())) as read,
        garbage_collected(run.speed.collect_every) as collect,
        profiling(profiled_steps(run.watch.profile), out, parallel.rank) as trace,
    ):
        advance(state.progress.step)
        if parallel.first and state.progress.step:
            inform(f"{run.name}: resumed after step {state.progress.step} of {run.steps}")
        while state.progress.step < run.steps:
            if state.progress.step == run.copy_step > 0:
                copy_dense(state, run, corpus)
            trace(state.progress.step + 1)
            started.append(start_step(state, run, read))
            step = state.progress.step
            collect(step)
            stopped = parallel.any(interrupted())
            late = deadline < math.inf and parallel.any(time.monotonic() > deadline)
            due = measure if measure and measure.due(step, run.steps) else None
            saved = run.checkpoint.due(step, run.steps)
            left = 0 if stopped or late or due or saved or step == run.steps else lag
            finished = finish_steps(state, run, started, left)
            measured = due.take(state.model) if due else {}
            score = measured.get("mean_perplexity")
            for metrics in finished:
                record(metrics, measured if metrics["step"] == step else {})
                advance(1, loss_and_speed(metrics))
            if parallel.first and score is not None:
                inform(f"held-out perplexity {score:.2f}, mean over domains, after step {step}")
            stop = reason_to_stop(run, out, state.progress, stopped, late)
            if stop or late or saved or score is not None:
                checkpoints.save(state.model, state.optimizer, state.progress, score)
            if stop:
                raise stop
        save_final(checkpoints, state, corpus, out)
        if parallel.first and interrupted():
            raise Interrupted(f"{out}: the run is finished")
    return out / MODEL


def steps_ahead(run: TrainConfig) -> int:
    """How many later steps start before a step's metrics are fetched: 1 on a GPU, so that it never waits.

    0 on a CPU, and with the guard against spikes, which needs a step's norm before the next one.
    """
    return 1 if pick_device().type == "cuda" and not run.guard.spike else 0


def finish_steps(
    state: TrainingState, run: TrainConfig, started: deque[StartedStep], left: int
) -> list[dict[str, Any]]:
    """Finish started steps until `left` of them remain; returns the metrics of each.

    After `max_skips` skipped steps in a row all are finished, so that a run that ends there has recorded all.
    """
    finished = []
    while len(started) > (0 if state.progress.skips >= run.guard.max_skips else left):
        finished.append(finish_step(state, run, started.popleft()))
    return finished


def save_final(
    checkpoints: CheckpointWriter, state: TrainingState, corpus: TrainingCorpus, out: Path
) -> None:
    """Save the final model after the last checkpoint; if that fails (OSError), before raising its error."""

    def save() -> None:
        if (model := gather_model(state.model, state.parallel)) is not None:
            save_model(model, corpus, out)

    try:
        checkpoints.wait()  # then an old one is dropped, which makes room for the model
    except OSError:
        with suppress(Exception):  # for example, the disk is too full for the model, too
            save()
        raise
    save()


def reason_to_stop(
    run: TrainConfig, out: Path, at: RunProgress, interrupted: bool, late: bool
) -> BaseException | None:
    """The error that ends training after this step, to raise once a checkpoint is saved; None: go on."""
    if at.skips >= run.guard.max_skips:
        return skips_error(out, at.step, at.skips)
    message = f"{out}: saved after step {at.step} of {run.steps}; run the same command again to resume"
    if at.step == run.steps:
        return None  # the final model is saved first
    return Interrupted(message) if interrupted else Unfinished(message) if late else None


def loss_and_speed(metrics: dict[str, Any]) -> str:
    """A step's loss and speed, for the progress bar."""
    loss = "not finite" if metrics["loss"] is None else f"{metrics['loss']:.3f}"
    return f"loss {loss}  {metrics['tokens_per_second']:,.0f} tokens/s"


def rewind_records(step: int, out: Path) -> None:
    """Drop the records of the steps after `step`, since these steps will be taken again."""
    for name in (METRICS, EVALUATION):
        if (out / name).exists():
            rewind(out / name, step)


def check_initial(initial: InitialModel, run: TrainConfig, corpus: TrainingCorpus, out: Path) -> None:
    """Read a new run's initial model before anything is written. InputError if the run cannot start."""
    if not (out / RUN).exists():
        initial.check_vocabulary(corpus)
        initial.check_labels(run.label_names(corpus.instances))
        if not run.init_optimizer:  # a checkpoint is read once its model is made
            initial.load()


def start_or_resume(
    run: TrainConfig, corpus: TrainingCorpus, out: Path, initial: InitialModel | None = None
) -> TrainingState:
    """The state of the newest intact checkpoint; without one, a new state with the run's initial weights.

    With `init_optimizer`, the initial state is that of the checkpoint `init`.
    """
    parallel = join_mesh(run.parallel)
    intact = newest_intact_together(checkpoints_in(out / CHECKPOINTS))
    newest = on_first_rank(lambda: own_checkpoint(run, out, intact))
    make: Callable[[LoriiniConfig], LoriiniForCausalLM] = LoriiniForCausalLM
    if initial and not newest:
        if run.init_optimizer:
            on_first_rank(lambda: initial.check_digest(run.init_digest))
            newest = on_first_rank(lambda: initial.folder)
        else:
            on_first_rank(partial(initial.load, run.init_digest))
            make = initial.in_design
    at = read_progress(newest) if newest else RunProgress()
    torch.manual_seed(run.seed + parallel.rank)  # rank 0 draws the weights for all
    config = model_config(run, corpus, 1 if run.is_dense_at(at.step) else None)
    model = build_model(config, parallel, run.precision, make)
    speed_up(model, run.speed)
    optimizer = make_optimizer(model, run.optimizer)
    if newest:
        restore(newest, model, optimizer, parallel)
    else:
        model.model.set_router_seed(run.seed)
    return TrainingState(model, optimizer, at, parallel, config.flops_per_token(run.length))


def copy_dense(state: TrainingState, run: TrainConfig, corpus: TrainingCorpus) -> None:
    """End the dense warm-up: the model and its optimizer become the mixture's."""
    config = model_config(run, corpus)
    state.model, state.optimizer = upcycle(
        state.model, state.optimizer, config, run.optimizer, state.parallel, run.precision
    )
    state.flops_per_token = config.flops_per_token(run.length)
    speed_up(state.model, run.speed)
