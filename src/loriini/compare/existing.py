"""Existing runs as the trainings of a comparison; runs that differ only in their seed are one variant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from loriini.common.errors import InputError
from loriini.common.folders import RUN
from loriini.common.grouping import grouped
from loriini.common.tokenizers import holds_tokenizer
from loriini.compare.trainings import Training, run_settings, variant_name
from loriini.data.prepare.tokenized.tokenizer import same_vocabulary
from loriini.evaluate.runs import check_distinct
from loriini.train.changes import NOT_OF_TRAINING
from loriini.train.config import ModelShape, RecordedCorpus, TrainConfig, from_json, read_run

NO_VARIANT = ("name", "seed", *NOT_OF_TRAINING)
"""Settings in which runs of one variant may differ."""
MOST_NAMED = 3
"""The most settings in a variant's name; if there are more, it has a folder instead."""


@dataclass(frozen=True)
class _ExistingRun:
    """A run folder and its settings, flattened."""

    folder: Path
    run: TrainConfig
    settings: Mapping[str, str]
    vocab_size: int


def existing_trainings(folders: Sequence[Path]) -> list[Training]:
    """The trainings of run folders.

    A variant's name is its runs' name and the settings in which runs of that name differ or, if these are
    more than MOST_NAMED, its first run's folder. InputError for a folder without a run, for two runs with the
    same settings and seed, and for runs with different tokenizers.
    """
    runs = [_read(folder) for folder in folders]
    check_distinct([existing.folder for existing in runs])
    for existing in runs:
        _check_vocabulary(runs[0], existing)
    by_name = grouped(runs, lambda existing: existing.run.name)
    trainings = []
    for existing in runs:
        varying = _varying([other.settings for other in by_name[existing.run.name]])
        settings = {name: existing.settings.get(name, "none") for name in varying}
        name = variant_name(existing.run.name, settings)
        if len(varying) > MOST_NAMED:
            alike = next(other for other in runs if other.settings == existing.settings)
            name = f"{existing.run.name} ({alike.folder})"
        trainings.append(Training(name, existing.run, existing.folder))
    for first, *others in grouped(trainings, lambda training: (training.variant, training.seed)).values():
        if others:
            raise InputError(
                f"{others[0].folder}: the same settings and seed as {first.folder}; give one of them"
            )
    return trainings


def _read(folder: Path) -> _ExistingRun:
    """The run in a folder; the folder may also be the run's `model`."""
    if not (folder / RUN).exists() and (folder.parent / RUN).exists() and folder.name == "model":
        folder = folder.parent
    if not (folder / RUN).exists():
        raise InputError(f"{folder}: no run here (no {RUN}); give the folder of a run that was trained")
    run, written = read_run(folder / RUN)
    corpus = from_json(RecordedCorpus, written, folder / RUN)
    shape = ModelShape.from_config(run.config(corpus.vocab_size))  # without fields that follow from others
    run = replace(run, model=replace(shape, recompute_merge=run.model.recompute_merge))
    settings = {**run_settings(run, NO_VARIANT), "corpus_digest": corpus.corpus_digest[:8]}
    return _ExistingRun(folder, run, settings, corpus.vocab_size)


def _varying(settings: Sequence[Mapping[str, str]]) -> list[str]:
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len({one.get(name, "none") for one in settings}) > 1]


def _check_vocabulary(first: _ExistingRun, other: _ExistingRun) -> None:
    """InputError if two runs have different tokenizers."""
    models = [run.folder / "model" for run in (first, other)]
    both = all(map(holds_tokenizer, models))
    if first.vocab_size != other.vocab_size or (both and not same_vocabulary(*models)):
        raise InputError(
            f"{other.folder}: its vocabulary is not that of {first.folder} ({other.vocab_size:,} and "
            f"{first.vocab_size:,} tokens), so their losses do not compare; train both on one tokenizer"
        )
