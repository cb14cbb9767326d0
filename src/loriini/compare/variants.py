"""Variants of a comparison: each over its seeds, the best of a sweep, and differences from the baseline."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from loriini.common.grouping import grouped
from loriini.compare.measures import Row, Rows, is_number
from loriini.compare.seeds import InstanceLosses, geometric, mean_losses, over_seeds, paired_by_seed
from loriini.evaluate.intervals import OVERALL, Difference

DifferencesOf = Callable[[InstanceLosses, InstanceLosses], Mapping[str, Difference]]
"""`differences_by_domain` of two models' losses on the held-out instances at hand."""
Scores = Mapping[int, Mapping[str, Any]]
"""A variant's evaluations on held-out text by seed: `perplexity` (`with_mean`) and `instance_losses`."""

COMMON_TO_SEEDS = (
    *("name", "design", "settings", "width", "causality", "training_causality"),
    *("experts_vary", "parameters", "flops_per_token"),
)
"""What all cells of a variant have in common."""
USE_OF_EXPERTS = ("experts", "utilisation", "experts_in_use", "experts_per_decision", "experts_by_score")


def summarize(cells: Rows) -> Row:
    """A variant: means and intervals over the seeds that finished."""
    finished = in_state(cells, "finished")
    losses = [cell["training_loss"] for cell in finished if is_number(cell["training_loss"])]
    first = next((cell for cell in (*finished, *cells) if "parameters" in cell), cells[0])
    return {
        **{key: first[key] for key in COMMON_TO_SEEDS if key in first},
        "seeds": [cell["seed"] for cell in cells],
        **{
            f"{state}_seeds": [cell["seed"] for cell in in_state(cells, state)]
            for state in ("finished", "diverged", "failed")
        },
        **{
            key: fmean(cell[key] for cell in finished if key in cell)
            for key in USE_OF_EXPERTS
            if key in first and finished
        },
        **({"training_loss": over_seeds(losses).to_dict()} if losses else {}),
        **scores_over_seeds(finished),
    }


def in_state(cells: Rows, state: str) -> Rows:
    """The cells in this state."""
    return [cell for cell in cells if cell.get("state") == state]


def scores_over_seeds(finished: Rows) -> dict[str, Any]:
    """`perplexity` by domain and over all, and `bits_per_byte`, of the cells that were scored, if any."""
    scored = [cell for cell in finished if is_number(cell.get("mean_perplexity"))]
    if not scored:
        return {}
    of_domains = {
        domain: [cell["perplexity"][domain] for cell in scored] for domain in scored[0]["perplexity"]
    }
    means = {OVERALL: [cell["mean_perplexity"] for cell in scored], **of_domains}
    return {
        "perplexity": {domain: geometric(values).to_dict() for domain, values in means.items()},
        "bits_per_byte": {
            domain: over_seeds([cell["bits_per_byte"][domain] for cell in scored]).to_dict()
            for domain in scored[0]["bits_per_byte"]
        },
    }


def by_width(rows: Iterable[Row]) -> dict[int | None, list[Row]]:
    """Cells or variants of each size, the smallest first; all under None without a ladder."""
    return dict(sorted(grouped(rows, lambda row: row.get("width")).items(), key=lambda item: item[0] or 0))


def unswept_settings(variant: Row) -> dict[str, str]:
    """The settings that a sweep does not choose."""
    settings = variant["settings"].items()
    return {name: value for name, value in settings if not name.startswith("optimizer.")}


def chosen(variants: Rows) -> set[str]:
    """The names of the variants that a sweep chose: of those that differ in `optimizer.` settings, the best.

    The best has the most finished seeds and, among those with equally many, the lowest training loss in the
    last tenth of the steps; held-out text is not used. Finished seeds come first because the mean over the
    few that did not diverge would misrepresent a rate.
    """

    def rank(v: Row) -> tuple[int, float]:
        return -len(v["finished_seeds"]), v.get("training_loss", {}).get("mean", math.inf)

    families = grouped(variants, lambda v: (v.get("width"), v["design"], *unswept_settings(v).items()))
    return {min(family, key=rank)["name"] for family in families.values()}


def baseline_of(variants: Rows) -> Row | None:
    """The variant that those of its size are compared with: the first that is chosen and causal."""
    return next((v for v in variants if v["chosen"] and v["causality"] != "none"), None)


def with_mean(perplexity: Mapping[str, float]) -> dict[str, float]:
    """Perplexity by domain, and the mean over the domains as OVERALL."""
    return {**perplexity, OVERALL: fmean(perplexity.values())}


def differences_from(
    baseline: str, scores: Mapping[str, Scores], differences_of: DifferencesOf
) -> dict[str, dict[str, Any]]:
    """By name of each other variant, its `difference` from the baseline by domain and over all, and
    `paired_seeds`.

    Seeds whose perplexity is not finite are left out, and so is a variant that shares none with the baseline.
    """
    finite = {
        name: {seed: score for seed, score in by_seed.items() if is_number(score["perplexity"][OVERALL])}
        for name, by_seed in scores.items()
    }
    base = finite[baseline]
    paired = {
        name: sorted(by_seed.keys() & base.keys()) for name, by_seed in finite.items() if name != baseline
    }
    return {
        name: {"difference": difference(base, scores[name], seeds, differences_of), "paired_seeds": seeds}
        for name, seeds in paired.items()
        if seeds
    }


def difference(
    base: Scores, compared: Scores, seeds: Sequence[int], differences_of: DifferencesOf
) -> dict[str, dict[str, Any]]:
    """By domain, the `change` of perplexity, with its interval over `seeds` and that over the `documents`."""
    losses = ([scores[seed]["instance_losses"] for seed in seeds] for scores in (base, compared))
    differences = {}
    for domain, over_documents in differences_of(*map(mean_losses, losses)).items():
        over_training = paired_by_seed(
            *({seed: scores[seed]["perplexity"][domain] for seed in seeds} for scores in (base, compared))
        )
        differences[domain] = {
            "change": over_training.change,
            "seeds": over_training.to_dict(),
            "documents": over_documents.to_dict(),
        }
    return differences
