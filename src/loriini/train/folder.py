"""A run's folder: which run owns it, its newest checkpoint, its record, and its final model."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loriini.common.atomic import write_json
from loriini.common.checks import as_argument, by_dotted_name
from loriini.common.errors import InputError
from loriini.common.hub import CHECKPOINTS, MODEL, RUN, is_hub_id
from loriini.common.progress import inform, warn
from loriini.data.batches.loader import readings
from loriini.model import LoriiniForCausalLM
from loriini.model.weights.card import TrainingRecord, model_card
from loriini.model.weights.loading import tokenizer_in
from loriini.model.weights.saving import missing_from, save_model_folder
from loriini.parallel.mesh import world_size
from loriini.routing import RoutingConfig
from loriini.routing.registry import REGISTERED
from loriini.train.checkpoints.state import STATE, Problems, newest_intact, read_state
from loriini.train.config import MAY_CHANGE, PATHS, PLAN, TrainConfig, read_run, run_of_json
from loriini.train.corpora import TrainingCorpus
from loriini.train.optimizer import learning_rate_factor
from loriini.train.records.metrics import EVALUATION, METRICS, read_metrics, read_records
from loriini.train.run_progress import RunProgress

ORDERS = {"random": "random", "similar": "similar", "papers": "similar"}
"""The order of documents that a method of `loriini prepare --order` gives."""


def make_folder(run: TrainConfig, corpus: TrainingCorpus, out: Path) -> None:
    """Make the folder of a new run.

    Raises InputError, before it is made, for a run that does not fit this corpus or these processes.
    """
    run.check(run.label_names(corpus.instances), world_size())
    if (out / RUN).exists():
        return
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; choose another --out")
    check_length(run, corpus)
    report_reading(run, corpus)
    warn_of_order(run, corpus)
    out.mkdir(parents=True, exist_ok=True)


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

    Raises InputError for another run's folder. Settings in MAY_CHANGE may have changed; `run.json` then
    follows (once it is finished, only in the paths of its corpora). A value that is `auto` on one side is
    taken from the other, and so is the digest of held-out text. To train the run, lock the folder first.
    """
    path = out / RUN
    processes = world_size()
    data = {"corpus_digest": corpus.digest, "vocab_size": corpus.vocab_size, "heldout_digest": heldout_digest}
    if not path.exists():
        write_json(path, {**run.to_dict(), **data, "processes": processes})
        return False
    before, written = read_run(path)
    run = run.chosen_as(before)
    recorded = written.get("processes")
    check_pool(run, recorded if isinstance(recorded, int) and recorded > 0 else processes, processes, path)
    now = {**run.to_dict(), **data}
    then = {**before.chosen_as(run).to_dict(), **{name: written.get(name) for name in data}}
    now, then = with_digest_of(now, then), with_digest_of(then, now)
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


def with_digest_of(settings: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with another's digest of held-out text where they have none."""
    return {**settings, "heldout_digest": settings["heldout_digest"] or other["heldout_digest"]}


def refuse_changes(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """InputError for settings of another run than the one before, which `path` records."""
    if changed := changed_settings(before, now):
        only_text = {"corpus_digest", "heldout_digest"}.issuperset(changed.split(", "))
        another = "choose another --out, or remove the folder"
        remedy = "give the text that it began with" if only_text else another
        raise InputError(f"{path}: this folder holds another run (different: {changed}); {remedy}")


def compares_micro_batches(routing: RoutingConfig) -> bool:
    """Whether a design has losses or selections over the units of a micro-batch."""
    return routing.load_balance > 0 or compares_within_processes(routing)


def compares_within_processes(routing: RoutingConfig) -> bool:
    """Whether these are over the units of each process: selections, and losses of extensions."""
    return routing.compares_units or not routing.loss_weights.keys().isdisjoint(REGISTERED["loss"])


def free_micro_batch(routing: RoutingConfig) -> tuple[str, ...]:
    """The setting of the micro-batch where it leaves what is trained unchanged, up to rounding."""
    return () if compares_micro_batches(routing) else ("micro_batch_size",)


def check_pool(run: TrainConfig, before: int, now: int, path: Path) -> None:
    """InputError where another number of processes would compare units of other instances.

    Load balance averages over all processes; what else compares units does so in each process.
    """
    compares = run.is_mixture and compares_micro_batches(run.routing)
    if not compares or run.batch_size % before or run.batch_size % now:
        return
    within = compares_within_processes(run.routing)
    then, here = (compared_at_once(run, processes, within) for processes in (before, now))
    if then != here:
        had, would = (
            ", ".join(f"{number} times {size}" for size, number in sorted(each.items()))
            for each in (then, here)
        )
        raise InputError(
            f"{path}: this design compares the units of some instances at once. In a step with {before} "
            f"{'process' if before == 1 else 'processes'} it was {had} instances; here it would be {would}: "
            "resume it in as many"
        )


def compared_at_once(run: TrainConfig, processes: int, within: bool) -> Counter[int]:
    """The numbers of instances that each process, or all together, compares at once, and how often a step."""
    share = run.batch_size // processes
    size = run.instances_at_once(share)
    sizes = [size] * (share // size) + ([share % size] if share % size else [])
    return Counter(sizes * processes if within else [each * processes for each in sizes])


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any], also: Sequence[str] = ()) -> str:
    """The dotted names of the settings that differ, except those that may change and those in `also`.

    `micro_batch_size` may change unless a loss or a selection is over the units of a micro-batch.
    """
    changeable = (*MAY_CHANGE, *free_micro_batch(RoutingConfig(**now["routing"])), *also)
    may_change = tuple(f"{name}." for name in changeable)
    return ", ".join(name for name in differing(before, now) if not f"{name}.".startswith(may_change))


def differing(before: Mapping[str, Any], now: Mapping[str, Any], section: str = "") -> Iterator[str]:
    """The dotted names of the settings of `now` that `before` has with other values, or has not."""
    for name, value in sorted(now.items()):
        other = before.get(name)
        if isinstance(value, dict) and isinstance(other, dict) and value.keys() == other.keys():
            yield from differing(other, value, f"{section}{name}.")
        elif value != other:
            yield f"{section}{name}"


def described_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The settings that differ, with both values, except where the text is."""
    then, today = map(by_dotted_name, (before, now))
    for name in differing(before, now):
        if name not in PATHS:
            yield f"{name} {as_argument(today.get(name))}, not {as_argument(then.get(name))}"


def shared_steps(one: TrainConfig, other: TrainConfig) -> int:
    """How many steps two runs that differ in their PLAN begin with in the same way."""

    def rate(run: TrainConfig, step: int) -> float:
        return learning_rate_factor(run.optimizer, step, run.steps)

    steps = range(min(one.steps, other.steps))
    same_rates = next((i for i in steps if rate(one, i) != rate(other, i)), len(steps))
    same_model = len(steps) if one.copy_step == other.copy_step else min(one.copy_step, other.copy_step)
    return min(same_rates, same_model)


def own_checkpoint(run: TrainConfig, out: Path, problems: Problems) -> tuple[Path, RunProgress] | None:
    """The newest intact checkpoint in `out`, and its progress. InputError if another run wrote it."""
    newest = newest_intact(out / CHECKPOINTS, problems)
    if newest:
        path, progress = newest
        written = run_of_json(read_state(path).get("run"), path / STATE)
        settings = written.chosen_as(run).to_dict(), run.chosen_as(written).to_dict()
        changed = changed_settings(*settings)
        if changed and progress.step <= shared_steps(written, run):
            changed = changed_settings(*settings, PLAN)
        if changed:
            raise InputError(
                f"{out / RUN}: not the run of {path.name} (different: {changed}); "
                "undo the change, or start another run"
            )
    return newest


def report_finished(out: Path) -> Path:
    """Report that the run had already finished; return its model folder."""
    inform(f"{out}: finished before, so nothing is trained")
    return out / MODEL


def has_model(out: Path) -> bool:
    """Whether the run in `out` has its final model. InputError for a part of one."""
    folder = out / MODEL
    if not folder.exists() or not any(folder.iterdir()):
        return False
    if missing := missing_from(folder):
        raise InputError(f"{folder}: not a whole model ({missing}); remove it, then resume the run")
    return True


def warn_of_order(run: TrainConfig, corpus: TrainingCorpus) -> None:
    """Warn when a corpus's documents are in another order than the run is meant for.

    A warning, since training on either order is sound: Lory's figure 4 compares them.
    """
    others = {ORDERS.get(method, run.order) for method in corpus.orders} - {run.order}
    if run.order is not None and others:
        warn(
            f"{run.name} is meant for documents in {run.order} order, the corpus is in {others.pop()} order; "
            f"prepare it with --order {run.order}"
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


def training_record(folder: Path, steps: Sequence[int] = ()) -> TrainingRecord | None:
    """The record of a run after a step, by default its last; None for a folder that is not a run's.

    For several steps, whose weights were averaged, it is the last one's, without its losses: they are not
    those of the mean.
    """
    if not (folder / RUN).exists():
        return None
    run, _ = read_run(folder / RUN)
    step = max(steps, default=run.steps)
    metrics = next((m for m in read_metrics(folder / METRICS) if m["step"] == step), {})
    measured = next((m for m in read_records(folder / EVALUATION) if m["step"] == step), {})
    started_from = None
    if run.init:  # a card is published: no paths of this machine
        name = run.init if is_hub_id(run.init) else Path(run.init).name
        started_from = f"{name} ({run.init_digest}), with {run.init_moments} optimizer moments"
    record = TrainingRecord(run.name, step, run.steps, metrics.get("tokens"), started_from=started_from)
    if len(steps) > 1:
        return replace(record, averaged=tuple(steps))
    perplexity = {domain: p for domain, p in measured.get("perplexity", {}).items() if p is not None}
    return replace(record, loss=metrics.get("loss"), perplexity=perplexity)
