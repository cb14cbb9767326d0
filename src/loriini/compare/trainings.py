"""A training of a comparison, the folder of its run, and its state."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from loriini.common.checks import as_argument, by_dotted_name
from loriini.common.errors import InputError
from loriini.common.folders import RUN
from loriini.data.jobs.artifact import digest
from loriini.routing import RoutingConfig
from loriini.train.changes import NOT_OF_TRAINING, free_micro_batch
from loriini.train.config import TrainConfig
from loriini.train.corpora import TrainingCorpus, read_corpora
from loriini.train.folder import check_length, has_model
from loriini.train.records.metrics import METRICS, read_records

State = Literal["new", "started", "finished", "diverged"]


@dataclass(frozen=True)
class Training:
    """One training of a comparison; trainings that differ only in their seed are one variant."""

    variant: str
    """Design and settings: what the report names."""
    run: TrainConfig
    folder: Path = Path()
    """The folder of its run, once `with_folders` has chosen it."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the grid that the design depends on; empty for an existing run."""
    width: int | None = None
    """Width of the model, where the comparison is a ladder of sizes."""

    @property
    def name(self) -> str:
        return f"{self.variant}, seed {self.seed}"

    @property
    def seed(self) -> int:
        return self.run.seed

    @property
    def design(self) -> RoutingConfig:
        """The design used for scoring; a model with one expert is dense."""
        return self.run.config().design

    @property
    def state(self) -> State:
        """The state of its run; `diverged`: stopped after too many skipped steps in a row."""
        if has_model(self.folder):
            return "finished"
        if not (self.folder / RUN).exists():
            return "new"
        most = self.run.guard.max_skips  # may be more than before: then the run goes on
        last = read_records(self.folder / METRICS)[-most:]
        return "diverged" if len(last) == most and all(step["skipped"] for step in last) else "started"

    @property
    def is_done(self) -> bool:
        """True if it finished or diverged, so that there is something to measure."""
        return self.state in ("finished", "diverged")


Placed = TypeVar("Placed", bound=Training)


def with_folders(trainings: Iterable[Placed], folder: Path) -> list[Placed]:
    """The trainings with their folders in `folder`: an existing one of the same settings, or a new one.

    InputError for a training that its corpus does not fit.
    """
    placed, opened = [], cache(read_corpora)
    for training in trainings:
        corpus = opened(training.run.corpus, training.run.corpus_weights)
        try:
            training.run.check(training.run.label_names(corpus.instances))
            check_length(training.run, corpus)
        except InputError as error:
            raise InputError(f"{training.variant}: {error}") from error
        trained = f"seed{training.seed}-{run_digest(training.run, corpus)}"
        readable = "".join(c if c.isalnum() or c in "=.-" else "_" for c in training.variant)
        made = sorted(folder.glob(f"*-{trained}"))
        placed.append(replace(training, folder=made[0] if made else folder / f"{readable}-{trained}"))
    return placed


def variant_name(name: str, settings: Mapping[str, object]) -> str:
    """A name followed by settings, each without its section: `lory segment_length=64`."""
    return " ".join([name, *(f"{key.rpartition('.')[2]}={value}" for key, value in settings.items())])


def unswept(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a variant that a sweep does not choose."""
    return {name: value for name, value in settings.items() if not name.startswith("optimizer.")}


def short_name(variant: Mapping[str, Any]) -> str:
    """The name of a variant in the results, without the settings that a sweep chooses."""
    settings = variant.get("settings", {})
    if (compared := unswept(settings)) == settings:
        return str(variant["name"])
    size = {"width": variant["width"]} if "width" in variant else {}
    return variant_name(variant["design"], {**size, **compared})


def run_settings(run: TrainConfig, left_out: Collection[str]) -> dict[str, str]:
    """A run's settings as text, by dotted name, without the settings and sections in `left_out`."""
    parts = tuple(f"{name}." for name in left_out)
    return {
        name: as_argument(value)
        for name, value in by_dotted_name(run.to_dict()).items()
        if not f"{name}.".startswith(parts)
    }


def run_digest(run: TrainConfig, corpus: TrainingCorpus) -> str:
    """A hash of what is trained: the settings that differ from their defaults, and the corpus.

    Defaults are left out so that a new setting does not change the hash of older runs.
    """
    left_out = (*NOT_OF_TRAINING, *free_micro_batch(run.routing))
    default = run_settings(TrainConfig(name="", routing=RoutingConfig()), left_out)
    settings = run_settings(run, left_out)
    changed = {name: value for name, value in settings.items() if value != default.get(name)}
    return digest({**changed, "corpus_digest": corpus.digest, "vocab_size": corpus.vocab_size})[:8]
