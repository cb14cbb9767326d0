"""What makes the trainings of a comparison unequal, in sentences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loriini.common.grouping import grouped
from loriini.common.settings import settings_of_kind
from loriini.compare.measures import Rows, is_number
from loriini.compare.trainings import Training, run_settings
from loriini.evaluate.perplexity import counts_first_segment
from loriini.reporting.wording import listing
from loriini.train.changes import NOT_OF_TRAINING
from loriini.train.config import TrainConfig

BY_DESIGN = (
    *NOT_OF_TRAINING,
    *settings_of_kind(TrainConfig, "name", "seed", "design", "start"),
    *("micro_batch_size", "warmup.dense_share", "model.intermediate_size"),
    *("model.vocab_size", "model.max_position_embeddings"),
)
"""Settings not reported as unequal: they cause no difference, or differ by design at equal active size."""
EQUAL_ACTIVE = 1.05
"""Ratio of active parameters up to which two models count as of equal size."""


def counted_first_segments(
    trainings: Sequence[Training], evaluations: Mapping[Path, Mapping[str, Any]]
) -> Iterator[str]:
    """Which variants' perplexity counts tokens of segment 1, which is routed by itself."""
    names = [
        training.variant
        for training in trainings
        if training.folder in evaluations
        and counts_first_segment(training.run.config(), evaluations[training.folder]["skip"])
    ]
    if names:
        yield (
            f"Perplexity counts tokens of segment 1 (--skip), which {listing(distinct(names))} "
            "routes by itself: it may be too low beside the others'."
        )


def unequal_settings(trainings: Sequence[Training]) -> Iterator[str]:
    """In which settings trainings of one width differ, except those that a grid varies."""
    for same_width in grouped(trainings, lambda training: training.width).values():
        settings = [run_settings(training.run, BY_DESIGN) for training in same_width]
        names = [training.variant for training in same_width]
        for setting in dict.fromkeys(name for of_one in settings for name in of_one):
            if not all(setting in training.settings for training in same_width):
                yield from unequal(setting, [of_one.get(setting, "none") for of_one in settings], names)


def unequal(what: str, values: Sequence[Any], names: Sequence[str]) -> Iterator[str]:
    """Which of the named runs have which value of `what`; nothing if all have the same."""
    of_value = grouped(zip(values, names, strict=True), lambda run: run[0])
    if len(of_value) > 1:
        shown = (
            f"{value} ({listing(distinct(name for _, name in runs))})" for value, runs in of_value.items()
        )
        yield f"The runs differ in {what}: {'; '.join(shown)}."


def distinct(names: Iterable[str]) -> list[str]:
    """The names, each once."""
    return list(dict.fromkeys(names))


def remarks(cells: Rows) -> Iterator[str]:
    """Unequal corpora and active sizes, and trainings without a result, among trainings of one width."""
    trained = [cell for cell in cells if "parameters" in cell]
    corpora = [cell["corpus_digest"][:8] for cell in trained]
    yield from unequal("the corpus, by its digest", corpora, [cell["name"] for cell in trained])
    yield from unequal_sizes(trained)
    yield from unfinished(cells)


def unequal_sizes(cells: Rows) -> Iterator[str]:
    """Which variants' active parameters differ, and which vary by token."""
    active = {cell["name"]: cell["parameters"]["active"] for cell in cells}
    if active and max(active.values()) > EQUAL_ACTIVE * min(active.values()):
        listed = ", ".join(f"{name} {count:,}" for name, count in active.items())
        yield f"Parameters active for a token differ: {listed}."
    vary = listing(distinct(cell["name"] for cell in cells if cell.get("experts_vary")))
    if vary:
        yield (
            f"How many experts a token of {vary} passes through varies; active parameters and FLOPs count "
            "all of them and are too high."
        )


def unfinished(cells: Rows) -> Iterator[str]:
    """Which trainings diverged, failed or are not done, and which have a held-out loss that is not finite."""
    for cell in cells:
        if cell.get("state") in ("diverged", "failed", "started"):
            state = {"started": "is not finished"}.get(cell["state"], cell["state"])
            reason = f": {cell['error']}" if "error" in cell else f" after {cell['steps']} steps"
            yield f"{cell['name']}, seed {cell['seed']} {state}{reason}."
        elif not is_number(cell.get("mean_perplexity", 0.0)):
            yield f"{cell['name']}, seed {cell['seed']}: its loss on held-out text is not finite; left out."
