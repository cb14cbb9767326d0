"""What makes the cells of a comparison unequal, in sentences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loriini.common.grouping import grouped
from loriini.compare.cells import Cell, run_settings
from loriini.compare.measures import CellRows, by_variant, is_number
from loriini.compare.running import Trial
from loriini.evaluate.perplexity import counts_first_segment
from loriini.reporting.wording import listing
from loriini.train.folder import NOT_OF_TRAINING

REMARKED_SEPARATELY = ("steps", "batch_size", "length", "seed", "warmup.dense_share")
"""Settings on which there are other remarks."""
DESIGN_SETTINGS = ("name", "routing", "model.num_experts", "model.low_rank", "model.intermediate_size")
"""Settings by which designs of equal active size differ."""
NOT_REMARKED = (*NOT_OF_TRAINING, "micro_batch_size", "init", "init_digest")
"""Settings that do not change what is trained; the model to start from has a remark of its own."""
FOLLOWING = {
    "model.vocab_size",
    "model.max_position_embeddings",
    "model.head_dim",
    "model.num_key_value_heads",
    "model.attention_out_bias",
}
"""Settings that follow from others or the corpus where they are `none`, and may then be the same."""
EQUAL_ACTIVE = 1.05
"""Ratio of active parameters up to which two models count as of equal size."""


def counted_first_segments(
    trials: Sequence[Trial], evaluations: Mapping[Path, Mapping[str, Any]]
) -> Iterator[str]:
    """Which variants' perplexity counts tokens of segment 1, which is routed by itself."""
    names = [
        trial.cell.variant
        for trial in trials
        if trial.folder in evaluations
        and counts_first_segment(trial.cell.run.config(), evaluations[trial.folder]["skip"])
    ]
    if names:
        yield (
            f"Perplexity counts tokens of segment 1 (--skip), which {listing(distinct(names))} "
            "routes by itself: it may be too low beside the others'."
        )


def unequal_training(cells: Sequence[Cell]) -> Iterator[str]:
    """In which training settings cells of one width differ, except those that a grid varies."""
    left_out = (*REMARKED_SEPARATELY, *DESIGN_SETTINGS, *NOT_REMARKED)
    for same_width in grouped(cells, lambda cell: cell.width).values():
        names = [cell.variant for cell in same_width]
        starts = [cell.run.init_digest or "" for cell in same_width]
        if len(set(starts)) > 1:
            models = [
                f"{Path(cell.run.init).name}, {cell.run.init_digest}" if cell.run.init else "none"
                for cell in same_width
            ]
            yield from unequal("the model that they start from", models, names)
        settings = [run_settings(cell.run, left_out) for cell in same_width]
        for name in dict.fromkeys(name for of_cell in settings for name in of_cell):
            if not all(name in cell.settings for cell in same_width):
                values = [of_cell.get(name, "none") for of_cell in settings]
                if name not in FOLLOWING or "none" not in values:
                    yield from unequal(name, values, names)


def unequal(what: str, values: Sequence[Any], names: Sequence[str]) -> Iterator[str]:
    """Which of the named runs have which of several values; nothing where all have the same."""
    of_value = grouped(zip(values, names, strict=True), lambda run: run[0])
    if len(of_value) > 1:
        shown = (
            f"{value} ({listing(distinct(name for _, name in runs))})" for value, runs in of_value.items()
        )
        yield f"The runs differ in {what}: {'; '.join(shown)}."


def distinct(names: Iterable[str]) -> list[str]:
    """The names, each once."""
    return list(dict.fromkeys(names))


def remarks(cells: CellRows) -> Iterator[str]:
    """What makes the runs unequal, so that a difference may have another cause than the design."""
    trained = [cell for cell in cells if "parameters" in cell]
    yield from unequal_settings(trained)
    yield from unequal_warmups(trained)
    yield from unequal_sizes(trained)
    yield from unequal_losses(trained)
    yield from unequal_seeds(cells)
    yield from unfinished(cells)


def unequal_settings(cells: CellRows) -> Iterator[str]:
    """How the runs differ apart from their designs: tokens, steps, batch, context or corpus."""
    finished = [cell for cell in cells if cell["state"] == "finished"]
    for key, what in (
        ("tokens", "tokens of training"),
        ("planned_steps", "steps"),
        ("batch_size", "instances in a batch"),
        ("length", "tokens of context"),
    ):
        compared = finished if key == "tokens" else cells
        values = [f"{cell[key]:,.0f}" for cell in compared]
        yield from unequal(what, values, [cell["name"] for cell in compared])
    corpora = [cell["corpus_digest"][:8] for cell in cells]
    yield from unequal("the corpus, by its digest", corpora, [cell["name"] for cell in cells])


def unequal_warmups(cells: CellRows) -> Iterator[str]:
    """Which mixtures begin as a dense model, where not all do."""
    of_share = grouped((cell for cell in cells if "dense_share" in cell), lambda cell: cell["dense_share"])
    if len(of_share) > 1:
        shown = "; ".join(
            f"{share:.0%} of the steps ({listing(distinct(mixture['name'] for mixture in mixtures))})"
            for share, mixtures in of_share.items()
        )
        yield f"The mixtures differ in their dense warm-up, which can decide a comparison: {shown}."


def unequal_sizes(cells: CellRows) -> Iterator[str]:
    """Which variants' active parameters differ, and which vary by token."""
    active = {cell["name"]: cell["parameters"]["active"] for cell in cells}
    if active and max(active.values()) > EQUAL_ACTIVE * min(active.values()):
        listed = ", ".join(f"{name} {count:,}" for name, count in active.items())
        yield f"Parameters active for a token differ: {listed}."
    vary = listing(distinct(cell["name"] for cell in cells if cell.get("experts_vary")))
    if vary:
        yield (
            f"How many experts a token of {vary} passes through varies; active parameters and FLOPs count "
            "all of them and are too high, so there is no loss at equal FLOPs."
        )


def unequal_losses(cells: CellRows) -> Iterator[str]:
    """Whose training loss leaves out tokens that others' counts."""
    skips = {cell["name"]: cell.get("loss_skips", 0) for cell in cells}
    if len(set(skips.values())) > 1:
        shown = listing([f"{name} ({n})" for name, n in skips.items() if n])
        yield (
            "Some training losses leave out segment 1, whose experts depend on its own tokens, and are not "
            f"compared with the others': {shown}."
        )


def unequal_seeds(cells: CellRows) -> Iterator[str]:
    """Which seeds each variant has, where they differ."""
    seeds = {name: tuple(cell["seed"] for cell in same) for name, same in by_variant(cells).items()}
    if len(set(seeds.values())) > 1:
        listed = "; ".join(f"{name}: {', '.join(map(str, numbers))}" for name, numbers in seeds.items())
        yield (
            f"The seeds differ ({listed}). Differences are over those that two variants share, and missing "
            "where there is none; other means are over a variant's own."
        )


def unfinished(cells: CellRows) -> Iterator[str]:
    """Which trainings diverged, failed or are not done, and whose loss on held-out text is not finite."""
    for cell in cells:
        if cell.get("state") in ("diverged", "failed", "started"):
            state = {"started": "is not finished"}.get(cell["state"], cell["state"])
            reason = f": {cell['error']}" if "error" in cell else f" after {cell['steps']} steps"
            yield f"{cell['name']}, seed {cell['seed']} {state}{reason}."
        elif not is_number(cell.get("mean_perplexity", 0.0)):
            yield f"{cell['name']}, seed {cell['seed']}: its loss on held-out text is not finite; left out."
