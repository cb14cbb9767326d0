"""A run's folder: which run owns it, its newest checkpoint, its record, and its final model."""

import shutil
from dataclasses import replace
from pathlib import Path

from loriini.common.atomic import atomic, commit, write_json
from loriini.common.errors import InputError
from loriini.common.folders import CHECKPOINTS, MODEL, RUN, TOKENIZER
from loriini.common.hub import is_hub_id
from loriini.common.progress import inform, warn
from loriini.data.batches.loader import readings
from loriini.model import LoriiniForCausalLM
from loriini.model.weights.card import TrainingRecord, model_card
from loriini.model.weights.loading import tokenizer_in
from loriini.model.weights.saving import missing_from, save_model_folder
from loriini.parallel.mesh import world_size
from loriini.train.changes import (
    PATHS,
    changed_settings,
    check_pool,
    described_changes,
    differing,
    refuse_changes,
)
from loriini.train.checkpoints.state import STATE, Newest, read_state, refuse_damaged
from loriini.train.config import TrainConfig, from_json, read_run
from loriini.train.corpora import TrainingCorpus
from loriini.train.records.metrics import EVALUATION, METRICS, read_records


def make_folder(run: TrainConfig, corpus: TrainingCorpus, out: Path) -> None:
    """Make a new run's folder. InputError if instances are shorter than the context."""
    if (out / RUN).exists():
        return
    check_length(run, corpus)
    report_reading(run, corpus)
    warn_of_order(run, corpus)
    out.mkdir(parents=True, exist_ok=True)


def keep_tokenizer(corpus: TrainingCorpus, out: Path) -> None:
    """Copy the tokenizer into a run's folder, so that its checkpoints do not need its corpora."""
    if not (out / TOKENIZER).exists():
        with atomic(out / TOKENIZER) as folder:
            shutil.copytree(corpus.tokenizer, folder)


def check_length(run: TrainConfig, corpus: TrainingCorpus) -> None:
    """InputError for a corpus whose instances are shorter than the run's context."""
    length = corpus.instances.length
    if run.length > length:
        folders = ", ".join(map(str, run.corpus)) or "the corpus"
        raise InputError(
            f"the context is {run.length} tokens, but {folders} was cut into instances of {length}; "
            f"train with --length {length}, or prepare with --length {run.length}"
        )


def report_reading(run: TrainConfig, corpus: TrainingCorpus) -> None:
    """Report how much of each instance a run leaves out, and how often it reads the same text."""
    length = corpus.instances.length
    if run.length < length:
        warn(
            f"reads the first {run.length} of every {length} tokens, {run.length / length:.0%} of the "
            f"corpus; to train on all of it, prepare it with --length {run.length}"
        )
    read = readings(corpus.instances, run.steps * run.batch_size)
    mixed = list(map(str, run.corpus)) or [f"corpus {i + 1}" for i in range(len(read))]
    names = ["the corpus"] if len(read) == 1 else mixed
    again = ", ".join(
        f"{name} {times:,.1f} times ({len(source):,} instances)"
        for name, (source, times) in zip(names, read, strict=True)
        if times > 1
    )
    if again:
        inform(f"{run.name}: reads {again}")


def claim_run(run: TrainConfig, corpus: TrainingCorpus, out: Path, heldout_digest: str | None = None) -> bool:
    """Write `run.json`, or check that it is this run's; returns whether the run is finished already.

    Raises InputError for another run's folder. Settings that may change (`changed_settings`) are updated in
    `run.json`; for a finished run, only the paths of its corpora. A value that is `auto` on one side is taken
    from the other, as is an absent digest of held-out text. To train the run, lock the folder first.
    """
    path = out / RUN
    processes = world_size()
    text = {"corpus_digest": corpus.digest, "vocab_size": corpus.vocab_size, "heldout_digest": heldout_digest}
    if not path.exists():
        write_json(path, {**run.to_dict(), **text, "processes": processes})
        return False
    before, written = read_run(path)
    run = run.fill_auto_from(before)
    recorded = written.get("processes")
    check_pool(run, recorded if isinstance(recorded, int) and recorded > 0 else processes, processes, path)
    then = {**before.fill_auto_from(run).to_dict(), **{name: written.get(name) for name in text}}
    now = {**run.to_dict(), **text, "heldout_digest": heldout_digest or then["heldout_digest"]}
    then["heldout_digest"] = then["heldout_digest"] or heldout_digest
    refuse_changes(then, now, path)
    finished = has_model(out)
    if finished and (kept := [name for name in differing(then, now) if name not in PATHS]):
        inform(f"{path}: keeps the settings that it was trained with; without effect: {', '.join(kept)}")
    elif changed := list(described_changes(then, now)):
        inform(f"{path}: resumed with {', '.join(changed)}")
    settings = {**written, "corpus": now["corpus"]} if finished else {**now, "processes": processes}
    if written != settings:
        write_json(path, settings)
    return finished


def run_of(checkpoint: Path) -> TrainConfig:
    """The run that wrote a checkpoint. InputError if its `state.json` does not say."""
    return from_json(TrainConfig, read_state(checkpoint).get("run"), checkpoint / STATE)


def own_checkpoint(run: TrainConfig, out: Path, newest: Newest) -> Path | None:
    """The newest intact checkpoint in `out`. InputError if another run wrote it.

    Later, damaged checkpoints are renamed `damaged-…`, so that they are kept but no longer used.
    """
    path = refuse_damaged(out / CHECKPOINTS, newest)
    if path:
        written = run_of(path)
        before, now = written.fill_auto_from(run), run.fill_auto_from(written)
        if changed := changed_settings(before.to_dict(), now.to_dict()):
            raise InputError(
                f"{out / RUN}: not the run of {path.name} (different: {', '.join(changed)}); "
                "undo the change, or start another run"
            )
        for each in newest.damaged:
            kept = each.with_name(f"damaged-{each.name}")
            shutil.rmtree(kept, ignore_errors=True)  # an earlier damaged checkpoint of this step
            commit(each, kept)
    return path


def report_finished(out: Path) -> Path:
    """Report that the run had already finished; return its model folder."""
    inform(f"{out}: finished before, so nothing is trained")
    return out / MODEL


def has_model(out: Path) -> bool:
    """Whether the run in `out` has its final model. InputError for an incomplete one."""
    folder = out / MODEL
    if not folder.exists() or not any(folder.iterdir()):
        return False
    if missing := missing_from(folder):
        raise InputError(f"{folder}: not a whole model ({missing}); remove it, then resume the run")
    return True


def warn_of_order(run: TrainConfig, corpus: TrainingCorpus) -> None:
    """Warn when a corpus's documents are in another order than the run is meant for.

    It is only a warning, since training on either order is sound. Every order but `random` is by similarity.
    """
    orders = {"random" if method == "random" else "similar" for method in corpus.orders if method}
    if run.order is not None and orders - {run.order}:
        warn(
            f"{run.name} is meant for documents in {run.order} order, and the corpus is in another; prepare "
            f"it with --order {run.order}"
        )


def save_model(model: LoriiniForCausalLM, corpus: TrainingCorpus, out: Path) -> None:
    """Write the final model of the run in `out` as the Hugging Face folder `out/model`, atomically.

    Damaged records are left out of its card: they must not keep a trained model from being saved.
    """
    tokenizer = tokenizer_in(corpus.tokenizer)
    try:
        record = training_record(out)
    except InputError as error:
        warn(f"{error}; the model card leaves the training out")
        record = None
    card = model_card(model.config, record)
    save_model_folder(model.eval(), tokenizer, card, out / MODEL)


def training_record(folder: Path, step: int | None = None) -> TrainingRecord | None:
    """A run's record for a model card, after `step` (None: its last); None if `folder` is not a run's."""
    if not (folder / RUN).exists():
        return None
    run, _ = read_run(folder / RUN)
    step = run.steps if step is None else step
    metrics = next((m for m in read_records(folder / METRICS) if m["step"] == step), {})
    measured = next((m for m in read_records(folder / EVALUATION) if m["step"] == step), {})
    started_from = None
    if run.init:  # a card is published: no paths of this machine
        name = run.init if is_hub_id(run.init) else Path(run.init).name
        started_from = f"{name} ({run.init_digest})"
    record = TrainingRecord(run.name, step, run.steps, metrics.get("tokens"), started_from=started_from)
    perplexity = {domain: p for domain, p in measured.get("perplexity", {}).items() if p is not None}
    return replace(record, loss=metrics.get("loss"), perplexity=perplexity)
