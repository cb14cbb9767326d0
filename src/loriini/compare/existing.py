"""Existing runs as the trials of a comparison; runs that differ only in their seed are one variant."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loriini.compare.cells import Cell, run_settings, variant_name
from loriini.compare.running import Trial
from loriini.corpus.tokenizer import same_vocabulary
from loriini.errors import InputError
from loriini.snapshot import holds_tokenizer
from loriini.train.folder import CHANGEABLE
from loriini.train.run import RUN, Run, read_run, recorded_corpus

NO_VARIANT = {"seed", "name", "evaluate", *CHANGEABLE}
"""Settings that do not tell variants apart."""


@dataclass(frozen=True)
class _Found:
    """A run folder and its settings, flattened."""

    folder: Path
    run: Run
    settings: Mapping[str, str]
    vocab_size: int


def existing_trials(folders: Sequence[Path]) -> list[Trial]:
    """The trials of run folders. InputError for a folder without a run, given twice, or of other tokens.

    A variant is named by its runs' name, and by the settings in which variants of that name differ.
    """
    found = [_find(folder) for folder in folders]
    for i, one in enumerate(found):
        if any(one.folder.resolve() == other.folder.resolve() for other in found[:i]):
            raise InputError(f"{one.folder}: given twice; give it once")
        _check_vocabulary(found[0], one)
    by_name = defaultdict[str, list[_Found]](list)
    for one in found:
        by_name[one.run.name].append(one)
    trials = []
    for one in found:
        varying = _varying([other.settings for other in by_name[one.run.name]])
        settings = {name: one.settings.get(name, "none") for name in varying}
        trials.append(Trial(Cell(variant_name(one.run.name, settings), one.run, settings), one.folder))
    seen = dict[tuple[str, int], Path]()
    for trial in trials:
        key = (trial.cell.variant, trial.cell.seed)
        if other_folder := seen.get(key):
            raise InputError(
                f"{trial.folder}: the same settings and seed as {other_folder}; give one of them"
            )
        seen[key] = trial.folder
    return trials


def _find(folder: Path) -> _Found:
    if not (folder / RUN).exists():
        raise InputError(f"{folder}: no run here (no {RUN}); give the folder of a run that was trained")
    run, written = read_run(folder / RUN)
    corpus = recorded_corpus(written, folder / RUN)
    settings = {**run_settings(run, NO_VARIANT), "corpus_digest": corpus.corpus_digest}
    return _Found(folder, run, settings, corpus.vocab_size)


def _varying(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The names whose values are not all the same."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [name for name in names if len({each.get(name, "none") for each in settings}) > 1]


def _check_vocabulary(first: _Found, other: _Found) -> None:
    """InputError where two runs have different tokenizers."""
    models = [one.folder / "model" for one in (first, other)]
    both = all(map(holds_tokenizer, models))
    if first.vocab_size != other.vocab_size or (both and not same_vocabulary(*models)):
        raise InputError(
            f"{other.folder}: its vocabulary is not that of {first.folder} ({other.vocab_size:,} and "
            f"{first.vocab_size:,} tokens), so their losses do not compare; train both on one tokenizer"
        )
