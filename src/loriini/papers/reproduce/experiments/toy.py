"""AoE's toy study as an item: who classifies what, at several widths and with several heads."""

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

import torch

from loriini.common.progress import progress
from loriini.papers.reproduce.charts import Chart, band, lines
from loriini.papers.reproduce.claims.claim import Claim
from loriini.papers.reproduce.claims.measured import Measured
from loriini.papers.reproduce.claims.quantities import Values
from loriini.papers.reproduce.experiments.experiment import Experiment
from loriini.papers.reproduce.experiments.toy_study import MAIN, MODELS, STUDIES, train_classifier
from loriini.papers.reproduce.scales import Scale

TAKEN = 0.9
"""Share of a class's inputs from which on an expert counts as having taken the class."""
EVENLY = 0.4
"""The smaller of two experts' shares of a class from which on both count as sharing it evenly."""
LEARNED = 0.99
"""Accuracy of every class that stands for a loss near zero."""
FAVOURITE = "AoE: one expert's share of classes one and two, first stage"
OTHER = "AoE: the other expert's share of class three"
SPLIT = "MoE: difference between classes one and two in an expert's share, first stage"
SPREAD = "MoE: the smaller expert's share of class three"
LOWEST = "{}: lowest accuracy of a class"


def toy(scale: Scale, seeds: int) -> Mapping[str, Any]:
    """Loads, norms and accuracy over training of both classifiers in every study, by seed."""
    found = {}
    with torch.random.fork_rng(), progress("studies", len(STUDIES)) as advance:
        for row, study in STUDIES.items():
            several = range(max(seeds, study.seeds))
            found[row] = {n: [list(train_classifier(n, seed, study)) for seed in several] for n in MODELS}
            advance()
    return {"rows": list(STUDIES), "studies": found}


def who_takes_what(m: Measured, row: str) -> dict[str, Values]:
    """The quantities of a study that the finding is about, by seed."""
    aoe, moe = (m.computed("studies", row, name) for name in ("AoE", "MoE"))
    return {
        FAVOURITE: {seed: favourite_share(middle(run)["load"]) for seed, run in aoe.items()},
        OTHER: {seed: others_share(run[-1]["load"]) for seed, run in aoe.items()},
        SPLIT: {seed: split(middle(run)["load"]) for seed, run in moe.items()},
        SPREAD: {seed: min(run[-1]["load"][2]) for seed, run in moe.items()},
        **{
            LOWEST.format(name): {seed: min(run[-1]["accuracy"]) for seed, run in runs.items()}
            for name, runs in (("AoE", aoe), ("MoE", moe))
        },
    }


def middle(run: list[dict[str, Any]]) -> dict[str, Any]:
    """What was measured at the end of the first stage."""
    return run[len(run) // 2]


def favourite_share(load_CE: list[list[float]]) -> float:
    """The share of the first two classes of the expert that has more of them."""
    return max((one + two) / 2 for one, two in zip(load_CE[0], load_CE[1], strict=True))


def others_share(load_CE: list[list[float]]) -> float:
    """The share of the third class of the expert that has less of the first two."""
    first, second, third = load_CE
    return third[0] if first[0] + second[0] < first[1] + second[1] else third[1]


def split(load_CE: list[list[float]]) -> float:
    """How far the first two classes differ in the first expert's share."""
    return abs(load_CE[0][0] - load_CE[1][0])


def who_classifies_what(m: Measured) -> Iterator[Claim]:
    """A router splits two classes and spreads the third; AoE gives two to one expert, the third to the other.

    So at all widths that are alike and with every head (appendix B), where classifiers have learned: the
    paper trains them until the loss is near zero. Other classifiers, and studies with unequal widths, which
    the paper does not mention, are measured too but decide nothing.
    """
    main = who_takes_what(m, MAIN)
    for what, low in ((FAVOURITE, TAKEN), (OTHER, TAKEN), (SPLIT, TAKEN), (SPREAD, EVENLY)):
        yield Claim(what, main[what], low=low)
    for name in MODELS:
        yield Claim(LOWEST.format(name), main[LOWEST.format(name)], low=LEARNED)
    for row, study in STUDIES.items():
        if row != MAIN and study.width == study.expert_width:
            found = who_takes_what(m, row)
            for name, what, low in (("AoE", OTHER, 0.5), ("MoE", SPREAD, EVENLY)):
                if fmean(found[LOWEST.format(name)].values()) >= LEARNED:
                    yield Claim(f"{row}: {what}", found[what], low=low)


def toy_charts(m: Measured) -> Iterator[Chart]:
    """Shares of one expert and activation norms over training, means over seeds.

    The expert is the one that has more of class one at the end of the first stage.
    """
    for name in MODELS:
        runs = m.extra["studies"][MAIN][name]
        steps = [point["step"] for point in runs[0]]
        first = [int(middle(run)["load"][0][1] > middle(run)["load"][0][0]) for run in runs]
        share, norm = (
            {
                (k, other): {
                    seed: [point[what][k][expert ^ other] for point in run]
                    for seed, (run, expert) in enumerate(zip(runs, first, strict=True))
                }
                for k in range(3)
                for other in (0, 1)
            }
            for what in ("load", "scale")
        )
        shares = {f"class {k + 1}": band(steps, share[k, 0]) for k in range(3)}
        yield lines(f"{name}: share of the first expert", "training steps", "share of the class", shares)
        norms = {
            f"class {k + 1}, {'other' if other else 'first'} expert": band(steps, norm[k, other])
            for k in (0, 2)
            for other in (0, 1)
        }
        yield lines(f"{name}: activation norms", "training steps", "mean L2 norm", norms)


TOY_EXPERIMENT = Experiment(
    "aoe-fig5",
    who_classifies_what,
    columns=who_takes_what,
    charts=toy_charts,
    trains=False,
    compute=toy,
    note="widths of inputs and experts, and the initial weights of the head, are those of the table's rows; "
    "rows whose inputs and experts differ in width, and classifiers below 99 % of a class, have no part in "
    "the verdict",
)
