"""The tables of docs/experiments.md: perplexities by seed, and differences paired by seed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loriini.compare.sections import difference_texts, mean_text
from loriini.compare.seeds import geometric, paired_by_seed
from loriini.evaluate.intervals import OVERALL
from loriini.reporting.wording import interval, percent
from pages import INTERVALS, markdown

BySeed = Mapping[int, float]
DEFAULTS = {
    "dense-rate-0.002": "dense, rate 0.002",
    "dense-rate-0.004": "dense, rate 0.004",
    "dense-rate-0.008": "dense, rate 0.008",
    "lory-rate-0.002": "Lory, rate 0.002",
    "lory-rate-0.004": "**Lory, rate 0.004**",
    "lory-rate-0.008": "Lory, rate 0.008",
    "lory-fresh-moments": "fresh moments of all parameters",
    "lory-no-warmup": "no dense warm-up",
    "lory-router-rate-x4": "router's rate × 4",
    "lory-segment-128": "segments of 128",
}
"""The runs of the defaults' grid, and how the page names them."""
CHOSEN = "lory-rate-0.004"
LONG_RUN = {"dense": "dense", "lory": "Lory", "lory-equal-gates": "gates of 1/E"}
"""The long run's models, and how the page names them."""
SHOWN_STEPS = (200, 600, 1000, 1400, 2000)


def by_seed(rows: Iterable[Mapping[str, Any]], name: str) -> dict[int, float]:
    """Perplexity of a run, mean over domains, by seed; a run that diverged has none."""
    found = {row["seed"]: row.get("mean_perplexity") for row in rows if row["name"] == name}
    return {seed: perplexity for seed, perplexity in found.items() if perplexity is not None}


def mean(values: BySeed) -> str:
    """The mean over seeds and its 95 % interval, 12.3 (11.9 to 12.7)."""
    return mean_text(geometric(list(values.values())).to_dict(), 1)


def change(base: BySeed, other: BySeed) -> str:
    """A relative difference and its 95 % interval over seeds, −5.3 % (−9.4 to −1.0 %)."""
    found = paired_by_seed(base, other)
    return f"{percent(found.change)} ({interval(found)})"


def batching_table(experiment: Mapping[str, Any]) -> str:
    """Dense and Lory in both orders, and the difference of the differences."""
    orders = ("similar", "random")
    values = {
        (design, order): by_seed(experiment["results"], f"{design}-{order}")
        for design in ("dense", "lory")
        for order in orders
    }
    ratios = {order: relative(values["dense", order], values["lory", order]) for order in orders}
    rows = [
        [
            f"{order} order",
            *(mean(values[design, order]) for design in ("dense", "lory")),
            change(values["dense", order], values["lory", order]),
        ]
        for order in orders
    ]
    beside = [change(values[design, "random"], values[design, "similar"]) for design in ("dense", "lory")]
    rows.append(["similar relative to random", *beside, change(ratios["random"], ratios["similar"])])
    return markdown(["", "dense", "Lory", "Lory relative to dense"], rows)


def relative(base: BySeed, other: BySeed) -> dict[int, float]:
    """The ratio of two perplexities, by each seed that neither lacks."""
    return {seed: other[seed] / base[seed] for seed in base.keys() & other.keys()}


def defaults_table(experiment: Mapping[str, Any]) -> str:
    """Every run of the grid, beside the chosen one."""
    chosen = by_seed(experiment["results"], CHOSEN)
    rows = []
    for name, shown in DEFAULTS.items():
        values = by_seed(experiment["results"], name)
        rows.append([shown, mean(values), "" if name == CHOSEN else change(chosen, values)])
    return markdown(["run", "perplexity", "relative to Lory at 0.004"], rows)


def long_run_text(experiment: Mapping[str, Any]) -> str:
    """The long run's models along the training and, in results since 2026-11-27, at its end."""
    table = along_the_way(experiment["results"])
    if "variants" not in experiment:
        last = evaluated(experiment["results"], SHOWN_STEPS[-1])
        return f"{table}\n\nAt the end, by domain: {by_domain(last)}."
    scored = ", ".join(f"{domain} {count}" for domain, count in experiment["heldout"]["instances"].items())
    return f"{table}\n\nAt the end, on more instances ({scored}):\n\n{at_the_end(experiment['variants'])}"


def along_the_way(results: Sequence[Mapping[str, Any]]) -> str:
    """Perplexity at some steps, and relative to dense."""
    dense, *mixtures = dict.fromkeys(row["name"] for row in results)
    rows = []
    for step in SHOWN_STEPS:
        values = {name: by_seed(evaluated(results, step), name) for name in (dense, *mixtures)}
        changes = [change(values[dense], values[name]) for name in mixtures]
        rows.append([f"{step:,}", *map(mean, values.values()), *changes])
    relative_to = [f"{LONG_RUN[name]} relative to dense" for name in mixtures]
    return markdown(["step", *(LONG_RUN[name] for name in (dense, *mixtures)), *relative_to], rows)


def at_the_end(variants: Mapping[str, Any]) -> str:
    """Perplexity relative to dense by domain, with both intervals."""
    dense, *mixtures = (variants[name] for name in LONG_RUN)
    rows = [
        ["mean" if domain == OVERALL else domain, f"{perplexity['mean']:.1f}"]
        + [cell for mixture in mixtures for cell in difference_texts(mixture["difference"][domain])]
        for domain, perplexity in dense["perplexity"].items()
    ]
    head = [column for name in list(LONG_RUN.values())[1:] for column in (name, *INTERVALS)]
    return markdown(["domain", "dense", *head], rows)


def evaluated(results: Sequence[Mapping[str, Any]], step: int) -> list[dict[str, Any]]:
    """The runs' evaluations at a step."""
    return [
        {"name": row["name"], "seed": row["seed"], **found}
        for row in results
        for found in row["evaluation"]
        if found["step"] == step
    ]


def by_domain(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lory relative to dense in every domain, the largest gain first."""
    changes = {}
    for domain in rows[0]["perplexity"]:
        dense, lory = (
            {row["seed"]: row["perplexity"][domain] for row in rows if row["name"] == name}
            for name in ("dense", "lory")
        )
        changes[domain] = paired_by_seed(dense, lory)
    ordered = sorted(changes.items(), key=lambda item: item[1].change)
    return ", ".join(f"{domain} {percent(each.change)} ({interval(each)})" for domain, each in ordered)
