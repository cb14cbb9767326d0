"""The training loop: two phases where a design admits them, else one; resumed exactly where it stopped."""

import math
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoTokenizer
from transformers.utils import logging

from loriini.atomic import atomic, write_json
from loriini.batches.joined import InstanceSource
from loriini.batches.loader import BatchLoader, Position
from loriini.errors import InputError, Unfinished
from loriini.hardware import autocast, keep_freed_memory, pick_device
from loriini.jobs.lock import folder_lock
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.parallel.mesh import ALONE, Parallel, once, processes, spread, world_size
from loriini.parallel.sharding import build, clip_gradients, gather
from loriini.progress import progress, warn
from loriini.routing import not_causal
from loriini.train import checkpoint
from loriini.train.balance import update_balance_bias
from loriini.train.checkpoint import Progress
from loriini.train.guard import check_skips, write_skipped
from loriini.train.measures import Measure, measure_all, rewind_all
from loriini.train.metrics import METRICS, ExpertUse, expert_metrics, expert_use, of_all, rewind, total
from loriini.train.optimizer import make_optimizer, rate, set_rate
from loriini.train.run import RUN, Run, read_run
from loriini.train.speed import speed_up
from loriini.train.upcycle import upcycle
from loriini.train.watch import check_sinks, pace, recording

CHANGEABLE = frozenset({"parallel", "speed", "watch", "guard", "order"})
"""Settings that may change when a run is resumed: they leave what is trained unchanged, up to rounding."""

ORDERS = {"random": "random", "similar": "similar", "papers": "similar"}
"""The order of documents that a method of `loriini prepare --order` gives."""


@dataclass(frozen=True)
class Corpus:
    """What training reads: instances of L+1 ids, and the vocabulary they are of."""

    instances: InstanceSource
    vocab_size: int
    eos_token_id: int
    digest: str
    tokenizer: Path
    orders: tuple[str, ...] = ()
    """The method by which each prepared corpus ordered its documents."""


@dataclass
class State:
    """What changes while a run trains."""

    model: LoriiniForCausalLM
    optimizer: torch.optim.AdamW
    at: Progress
    parallel: Parallel = ALONE


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop; everything is saved."""


def train(
    run: Run,
    corpus: Corpus,
    out: Path,
    measures: Sequence[Measure] = (),
    minutes: float = math.inf,
) -> Path:
    """Train `run` into the folder `out` and return its `model/` folder; go on where a former call stopped.

    Raises InputError when `out` holds another run or another process is at work in it, Interrupted after
    SIGINT or SIGTERM, and Unfinished when the `minutes` are over before the run is; both have saved.
    """
    deadline = time.monotonic() + 60 * minutes
    check_sinks(run.watch.sinks)
    with processes(), ExitStack() as held:
        if once(lambda: claim(run, corpus, out)):
            return out / "model"
        once(lambda: held.enter_context(folder_lock(out)))
        keep_freed_memory()
        state = start_or_resume(run, corpus, out)
        once(lambda: rewind_files(measures, state.at.step, out))
        return train_to_the_end(state, run, corpus, out, measures, deadline)


def train_to_the_end(
    state: State, run: Run, corpus: Corpus, out: Path, measures: Sequence[Measure], deadline: float
) -> Path:
    """Make the steps that are left, write each down, and save the final model."""
    parallel = state.parallel
    files = out if parallel.first else None
    if parallel.first and run.model.num_experts > 1 and (remark := not_causal(run.routing, training=True)):
        warn(remark)
    batches = BatchLoader(corpus.instances, run.batch_size, run.seed, parallel.rank, parallel.world_size)
    with (
        interruptible() as interrupted,
        recording(run.watch, run.name, run.to_dict(), files, state.at.step) as record,
        progress(run.name, run.steps, shown=parallel.first) as advance,
        checkpoint.saving(out / "checkpoints", run.checkpoint.keep, parallel) as save,
    ):
        advance(state.at.step)
        while state.at.step < run.steps:
            if state.at.step == run.copy_step and state.model.config.num_experts < run.model.num_experts:
                copy_dense(state, run, corpus)
            position = Position(state.at.consumed)
            metrics = training_step(state, run, batches)
            measured, best_by = measure_all(measures, state.model, state.at.step, run.steps, files)
            record(metrics, measured)
            loss = "not finite" if metrics["loss"] is None else f"{metrics['loss']:.3f}"
            advance(1, f"loss {loss}  {metrics['tokens_per_second']:,.0f} tokens/s")
            if metrics["skipped"]:
                write_skipped(out, state.at.step, batches, position)
                check_skips(out, state.at.step, state.at.skips, run.guard)
            stopped = parallel.any(interrupted())
            late = deadline < math.inf and parallel.any(time.monotonic() > deadline)
            due = run.checkpoint.every and state.at.step % run.checkpoint.every == 0
            if stopped or late or due or best_by is not None:
                save(state.model, state.optimizer, state.at, best_by)
            where = f"{out}: saved after step {state.at.step} of {run.steps}; the same command goes on"
            if stopped:
                raise Interrupted(where)
            if late and state.at.step < run.steps:
                raise Unfinished(where)
    return save_model(state, corpus, out / "model")


def claim(run: Run, corpus: Corpus, out: Path) -> bool:
    """Write `run.json`, or check that it is this run's; returns whether the run is finished already.

    Raises InputError for another run's folder and for a run that cannot be. The settings in CHANGEABLE may
    have changed; `run.json` then follows.
    """
    run.check(run.label_names(corpus.instances), world_size())
    path, data = out / RUN, {"corpus_digest": corpus.digest, "vocab_size": corpus.vocab_size}
    settings = {**run.to_dict(), **data}
    if path.exists():
        before, written = read_run(path)
        settings_before = {**before.to_dict(), **{name: written.get(name) for name in data}}
        changed = sorted(k for k in settings.keys() - CHANGEABLE if settings_before[k] != settings[k])
        if changed:
            raise InputError(
                f"{path}: this folder holds another run (different: {', '.join(changed)}); "
                "choose another --out, or remove the folder"
            )
        finished = (out / "model").exists()
        if written != settings and not finished:
            write_json(path, settings)
        return finished
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; choose another --out")
    if run.length > corpus.instances.length:
        raise InputError(
            f"the run's context is {run.length} tokens, but the corpus was cut into "
            f"{corpus.instances.length}; prepare it with --length {run.length}"
        )
    warn_of_order(run, corpus)
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, settings)
    return False


def warn_of_order(run: Run, corpus: Corpus) -> None:
    """Warn when a corpus's documents are in another order than the run is meant for.

    A warning, since training on either order is sound: Lory's figure 4 compares them.
    """
    others = {ORDERS.get(method, run.order) for method in corpus.orders} - {run.order}
    if run.order is not None and others:
        warn(
            f"{run.name} is meant for documents in {run.order} order, the corpus is in {others.pop()} order; "
            f"prepare it with --order {run.order}"
        )


def rewind_files(measures: Sequence[Measure], step: int, out: Path) -> None:
    """Drop what was written down of steps after `step`, which are made again."""
    rewind(out / METRICS, step)
    rewind_all(measures, step, out)


def start_or_resume(run: Run, corpus: Corpus, out: Path) -> State:
    """The newest whole checkpoint's state, or a fresh one."""
    parallel = spread(run.parallel)
    found = once(lambda: checkpoint.newest(out / "checkpoints"))
    at = found[1] if found else Progress()
    torch.manual_seed(run.seed + parallel.rank)  # the first process draws what all start from
    dense = at.step <= run.copy_step and run.copy_step > 0
    model = build(model_config(run, corpus, 1 if dense else None), parallel, run.precision)
    speed_up(model, run.speed)
    optimizer = make_optimizer(model, run.optimizer)
    if found:
        checkpoint.restore(found[0], model, optimizer, parallel)
    return State(model, optimizer, at, parallel)


def copy_dense(state: State, run: Run, corpus: Corpus) -> None:
    """End the dense phase: the model and its optimizer become the mixture's."""
    config = model_config(run, corpus)
    state.model, state.optimizer = upcycle(
        state.model, state.optimizer, config, run.optimizer, run.warmup, state.parallel, run.precision
    )
    speed_up(state.model, run.speed)


def model_config(run: Run, corpus: Corpus, num_experts: int | None = None) -> LoriiniConfig:
    """The configuration of a run's model on this corpus, or of its dense model of one expert."""
    names = run.label_names(corpus.instances)
    return run.config(corpus.vocab_size, corpus.eos_token_id, num_experts, names)


def training_step(state: State, run: Run, batches: BatchLoader) -> dict[str, Any]:
    """One optimizer step; moves `state` on and returns the step's metrics."""
    started = time.perf_counter()
    ids, instances_B, position = batches.at(Position(state.at.consumed))
    set_rate(state.optimizer, rate(run.optimizer, state.at.step, run.steps))
    labels_B = routing_labels(state.model, batches.instances, instances_B)
    state.model.model.begin_step()
    tokens_BL = to_device(ids, run.length)
    loss, auxiliary, use = accumulate_gradients(state.model, tokens_BL, run, labels_B, state.parallel)
    norm = clip_gradients(state.model, run.optimizer.clip, state.parallel)
    finite = bool(torch.isfinite(norm)) and math.isfinite(loss)
    if finite:
        state.optimizer.step()
        update_balance_bias(state.model, use)
    state.optimizer.zero_grad(set_to_none=True)
    tokens = run.batch_size * run.length
    speed = tokens / (time.perf_counter() - started)
    state.at = Progress(
        step=state.at.step + 1,
        consumed=position.consumed,
        tokens=state.at.tokens + tokens,
        skips=0 if finite else state.at.skips + 1,
    )
    return {
        "step": state.at.step,
        "loss": loss if math.isfinite(loss) else None,
        "tokens": state.at.tokens,
        "auxiliary_loss": auxiliary,
        "gradient_norm": norm.item() if finite else None,
        "learning_rate": state.optimizer.param_groups[0]["lr"],
        "experts": state.model.config.num_experts,
        "skipped": not finite,
        **pace(state.model.config, run.watch, run.length, speed, state.parallel.world_size),
        **expert_metrics(use, run.routing, state.at.step % run.per_expert_every == 0),
    }


def accumulate_gradients(
    model: LoriiniForCausalLM,
    ids_BL: Tensor,
    run: Run,
    labels_B: Tensor | None = None,
    parallel: Parallel = ALONE,
) -> tuple[float, float, ExpertUse]:
    """Backward over micro-batches; returns mean cross-entropy, mean auxiliary loss, and the experts' use.

    `labels_B` are the labels (B,) by which a label-routed model routes the instances (B, L+1). What is
    returned is of all processes together, and so are the gradients once they are clipped.
    """
    size = run.micro_batch_size or len(ids_BL)
    cross_entropy = auxiliary = 0.0
    uses: list[ExpertUse] = []
    for first in range(0, len(ids_BL), size):
        part = ids_BL[first : first + size]
        labels = None if labels_B is None else labels_B[first : first + size]
        share = len(part) / len(ids_BL)
        with autocast(run.precision):
            out = model(
                part[:, :-1],
                shift_labels=part[:, 1:],
                routing_labels=labels,
                skip_logits=run.speed.fuses_loss,
                average=parallel.mean,
            )
        (out.loss * (share / parallel.world_size)).backward()
        added = 0.0 if out.auxiliary_loss is None else out.auxiliary_loss.item()
        cross_entropy += share * (out.loss.item() - added)
        auxiliary += share * added
        uses.append(expert_use(out.routings))
    cross_entropy, auxiliary = parallel.mean_of(cross_entropy, auxiliary)
    return cross_entropy, auxiliary, of_all(total(uses), parallel)


def routing_labels(
    model: LoriiniForCausalLM, source: InstanceSource, ids_B: NDArray[np.int64]
) -> Tensor | None:
    """The labels (B,) of some instances on the model's device; None for a model that asks for none."""
    if not model.config.routed_by_label:
        return None
    return torch.from_numpy(source.labels(ids_B)).to(model.device)


def to_device(ids: np.ndarray, length: int) -> Tensor:
    """Instances as ids (B, length+1) on the training device."""
    return torch.from_numpy(ids[:, : length + 1]).to(pick_device())


def save_model(state: State, corpus: Corpus, folder: Path) -> Path:
    """Write the final model and its tokenizer as a Hugging Face folder, whole or not at all."""
    model = gather(state.model, state.parallel)
    if model is not None:
        logging.disable_progress_bar()
        with atomic(folder) as temporary:
            model.eval().save_pretrained(temporary)
            AutoTokenizer.from_pretrained(corpus.tokenizer).save_pretrained(temporary)
    return folder


@contextmanager
def interruptible() -> Iterator[Any]:
    """While inside, SIGINT and SIGTERM only make the yielded function true; a second SIGINT stops at once.

    A second SIGTERM does not: launchers send it to a worker that still saves.
    """
    seen: list[int] = []

    def note(number: int, frame: Any) -> None:
        if seen and number == signal.SIGINT:
            raise KeyboardInterrupt
        seen.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
