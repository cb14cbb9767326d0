"""The design-choices paper's items."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from loriini.papers.published.items.design_choices import SEQUENCE_TOP2
from loriini.papers.reproduce.charts import Chart, dots
from loriini.papers.reproduce.claims.claim import (
    HOLDS,
    Claim,
    above,
    below,
    close,
    judged_against_leak,
    occurs,
)
from loriini.papers.reproduce.claims.measured import Measured
from loriini.papers.reproduce.claims.quantities import Values, difference, mean_of
from loriini.papers.reproduce.experiments import common as c
from loriini.papers.reproduce.experiments.design_choices_assignment import (
    TEXT_OF,
    assignment_charts,
    assignment_columns,
    frozen_as_learned,
    in_languages_not_topics,
    weakly_in_topics,
)
from loriini.papers.reproduce.experiments.experiment import Experiment

TOLERANCE = 0.03
"""Nats up to which designs count as "about as good"; the paper's tables call 1 to 3 % so."""
UNUSED = 0.1
"""Fraction of the even share: an expert with less of a layer's choices has collapsed."""
IN_USE = 0.5
"""Fraction of the even share: an expert with more of a layer's choices is in use again."""
ENOUGH = 20
"""Choices for each expert, on average, of which a record must be to show a collapse: by chance alone an
expert gets less than a tenth of an even share of 20 in fewer than one of ten million records."""
LAST = 0.2
"""Part of training, at its end, over which the use of experts is averaged."""
UNIT = "token over sequence"
WIDTHS_ALIKE = "not judged, as twice the dense width is not shown to gain more than the margin"
SEES_ALL = (
    "not judged: routing by the whole sequence sees later tokens, so its loss is too low to show more than "
    "that it is worse"
)
MEAN_NOTE = (
    "perplexity is the final model's on held-out text, in the paper the mean of the last 100 iterations"
)
TOPICS = "topics and languages are the domains of held-out text instead of MMLU's, XNLI's and X-stance's"


def units_and_scopes(m: Measured) -> Iterator[Claim]:
    """Table 1's comparisons with dense widths, and of units, scopes and k: the unit changes most."""
    loss = m.loss
    yield below(
        "loss of token top-2 minus that of dense 4x",
        loss("token, layer-wise, top-2"),
        loss("dense, 4x FFN width"),
    )
    yield below(
        "loss of token top-1 minus that of dense 1x",
        loss("token, layer-wise, top-1"),
        loss("dense, 1x FFN width"),
    )
    yield as_good_as_wider(m)
    for k in (2, 1):
        pair = (f"token, layer-wise, top-{k}", f"sequence, layer-wise, top-{k}")
        claim = below(f"top-{k}: loss of token minus sequence", *map(loss, pair))
        yield judged_against_leak(claim, too_low=False, why=SEES_ALL)
    gains = mean_gains(m)
    for other in ("layer-wise over global", "global over layer-wise", "top-2 over top-1", "top-1 over top-2"):
        claim = above(f"gain of token over sequence minus that of {other}", gains[UNIT], gains[other])
        yield judged_against_leak(claim, too_low=True, why=SEES_ALL)


def as_good_as_wider(m: Measured) -> Claim:
    """Sequence-level top-2 is about as good as a dense model of its active parameters.

    It is judged where twice the width of a dense model gains more than the margin: otherwise any design would
    be as good.
    """
    narrow, wide = (m.loss(f"dense, {width}x FFN width") for width in (1, 2))
    gap = difference(m.loss(SEQUENCE_TOP2), wide)
    claim = Claim("loss of sequence top-2 minus that of dense 2x", gap, -TOLERANCE, TOLERANCE, "nats")
    if gap and Claim("", difference(narrow, wide), low=TOLERANCE).verdict != HOLDS:
        return replace(claim, values={}, unjudged=WIDTHS_ALIKE)
    return judged_against_leak(claim, too_low=True, why=SEES_ALL)


def mean_gains(m: Measured) -> dict[str, Values]:
    """How much lower the loss is with another unit, scope or k, each the mean over two pairs of rows."""
    pairs = {
        UNIT: [(f"sequence, layer-wise, top-{k}", f"token, layer-wise, top-{k}") for k in (1, 2)],
        "layer-wise over global": [
            (f"sequence, global, top-{k}", f"sequence, layer-wise, top-{k}") for k in (1, 2)
        ],
        "top-2 over top-1": [
            (f"{unit}, layer-wise, top-1", f"{unit}, layer-wise, top-2") for unit in ("token", "sequence")
        ],
    }
    pairs["global over layer-wise"] = [(b, a) for a, b in pairs["layer-wise over global"]]
    pairs["top-1 over top-2"] = [(b, a) for a, b in pairs["top-2 over top-1"]]
    return {
        name: mean_of([difference(m.loss(one), m.loss(other)) for one, other in of_name])
        for name, of_name in pairs.items()
    }


def more_experts(m: Measured) -> Iterator[Claim]:
    """Sequences gain from active experts, tokens from more experts in all."""
    loss = m.loss
    yield below("sequence: loss of (4, 3) minus (4, 2)", loss("sequence (4, 3)"), loss("sequence (4, 2)"))
    yield below("sequence: loss of (4, 2) minus (4, 1)", loss("sequence (4, 2)"), loss("sequence (4, 1)"))
    yield below("token: loss of (4, 2) minus (2, 2)", loss("token (4, 2)"), loss("token (2, 2)"))
    yield below("token: loss of (6, 2) minus (4, 2)", loss("token (6, 2)"), loss("token (4, 2)"))
    gains = {
        unit: difference(loss(f"{unit} (2, 2)"), loss(f"{unit} (6, 2)")) for unit in ("token", "sequence")
    }
    yield above("gain from 2 to 6 experts, token minus sequence", gains["token"], gains["sequence"])


def learned_frozen_random(m: Measured) -> Iterator[Claim]:
    """Frozen about as good as learned, both better than random; language about as good as learned."""
    for unit in ("sequence", "token"):
        learned, frozen, random = (
            m.loss(f"{unit}, layer-wise, {scorer}") for scorer in ("learned", "frozen", "random")
        )
        yield close(f"{unit}: loss of frozen minus learned", frozen, learned, TOLERANCE)
        yield below(f"{unit}: loss of learned minus random", learned, random)
        yield below(f"{unit}: loss of frozen minus random", frozen, random)
    language = m.loss("sequence, global, language")
    if language:
        quantity = "loss of global routing by language minus learned"
        claim = close(quantity, language, m.loss("sequence, global, learned"), TOLERANCE)
        yield judged_against_leak(claim, too_low=False, why=SEES_ALL)


def collapsed(m: Measured, row: str, layers: slice = slice(None)) -> Values:
    """The share of experts that get less than a tenth of the even share at the end of training."""
    by_seed = {}
    for seed, load_LE in late_load(m, row).items():
        late_LE = load_LE[layers]
        if len(late_LE):
            by_seed[seed] = float((late_LE < UNUSED / late_LE.shape[1]).mean())
    return by_seed


def least_load(m: Measured, row: str) -> Values:
    """The smallest share of any expert at the end, relative to the even share."""
    return {seed: float(load_LE.min() * load_LE.shape[1]) for seed, load_LE in late_load(m, row).items()}


def late_load(m: Measured, row: str) -> dict[int, NDArray[np.float64]]:
    """Each expert's mean share of its layer's choices (L, E) at the end of training."""
    loads = {seed: np.array(load["values"]) for seed, load in m.each(row, "training", "load").items()}
    return {
        seed: load_SLE[-max(1, round(LAST * len(load_SLE))) :].mean(0) for seed, load_SLE in loads.items()
    }


def collapse_is_harmless(m: Measured) -> Iterator[Claim]:
    """Without balancing experts of outer layers collapse, with it fewer, at almost the same perplexity."""
    without, balanced = "no balancing", "balancing"
    yield Claim("share of collapsed experts without balancing", collapsed(m, without), low=0.01)
    yield from collapsed_outside(m, without)
    quantity = "share of collapsed experts, balanced less without"
    yield below(quantity, collapsed(m, balanced), collapsed(m, without), unit="")
    yield close("loss without balancing minus that with it", m.loss(without), m.loss(balanced), TOLERANCE)


RECOVERED = "experts that recovered from collapse, all seeds"
"""A claim that short runs with small batches do not measure."""


def collapse_and_recovery(m: Measured) -> Iterator[Claim]:
    """Experts collapse, most in the first and last layer, and some recover."""
    yield Claim("share of collapsed experts at the end", collapsed(m, SEQUENCE_TOP2), low=0.01)
    yield from collapsed_outside(m, SEQUENCE_TOP2)
    yield occurs(RECOVERED, recovered(m, SEQUENCE_TOP2))


def collapsed_outside(m: Measured, row: str) -> Iterator[Claim]:
    """More experts collapse in the first and last layer than in those between, if there are any."""
    outer = mean_of([collapsed(m, row, part) for part in (slice(0, 1), slice(-1, None))])
    inner = collapsed(m, row, slice(1, -1))
    if inner:
        yield above("share of collapsed experts, first and last layer less the others", outer, inner, unit="")


def recovered(m: Measured, row: str) -> Values:
    """How many experts collapsed and were in use later, each in two records in a row.

    Seeds are left out whose records are of few choices, such as those of a single step with a small batch.
    """
    by_seed = {}
    for seed, load in m.each(row, "training", "load").items():
        load_SLE = np.array(load["values"])
        experts = load_SLE.shape[2]
        if min(load["choices"]) >= ENOUGH * experts:
            collapsed_SLE = lasting(load_SLE < UNUSED / experts)
            in_use_SLE = lasting(load_SLE > IN_USE / experts)
            by_seed[seed] = float((np.maximum.accumulate(collapsed_SLE) & in_use_SLE).any(0).sum())
    return by_seed


def lasting(seen_SLE: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """What is seen in two records in a row, at the second."""
    return seen_SLE[1:] & seen_SLE[:-1]


def stays_in_use(m: Measured) -> Iterator[Claim]:
    """Every expert of every layer keeps a share of the choices."""
    (row,) = m.rows
    yield Claim("smallest load relative to the even share", least_load(m, row), low=UNUSED)


def load_charts(m: Measured) -> Iterator[Chart]:
    """The load over training, layer by layer."""
    for row in m.finished:
        yield from c.expert_charts(m, row, "load", "share of the choices")


def collapse_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """Perplexity and collapsed experts."""
    return {
        m.text: c.exp(m.loss(row)),
        "collapsed experts, %": c.scaled(collapsed(m, row), 100),
        "smallest load, of the even share": least_load(m, row),
    }


def one_or_two_layers(m: Measured) -> Iterator[Claim]:
    """One or two layers make no difference (appendix A.2)."""
    quantity = "loss of two layers minus that of one"
    yield close(quantity, m.loss("two layers"), m.loss("one layer"), TOLERANCE)


def perplexity_chart(m: Measured) -> Iterator[Chart]:
    """Mean perplexity of every row."""
    series = {row: {m.text: c.exp(m.loss(row))} for row in m.finished}
    yield dots("perplexity", "perplexity", series)


REDRAWN = "a random router is drawn anew at every step of training, and for every sequence of held-out text"

by_perplexity = partial(
    Experiment, measures=("heldout",), columns=c.text_columns, charts=perplexity_chart, note=MEAN_NOTE
)
by_load = partial(Experiment, measures=("heldout",), columns=collapse_columns, charts=load_charts)
by_assignment = partial(
    Experiment, measures=tuple(TEXT_OF), columns=assignment_columns, charts=assignment_charts, note=TOPICS
)

DESIGN_CHOICES_EXPERIMENTS = (
    by_perplexity("design-choices-table1", units_and_scopes),
    by_perplexity("design-choices-table2", more_experts),
    by_perplexity(
        "design-choices-table3",
        learned_frozen_random,
        only_first_text=("sequence, global, language", "sequence, global, learned"),
    ),
    by_load("design-choices-collapse", collapse_is_harmless),
    by_load("design-choices-fig2", collapse_and_recovery),
    by_load("design-choices-fig3", stays_in_use),
    by_load("design-choices-fig4", stays_in_use),
    Experiment("design-choices-fig1", one_or_two_layers, ("heldout",), c.text_columns, c.losses),
    by_assignment("design-choices-assignment", weakly_in_topics),
    by_assignment("design-choices-random-assignment", frozen_as_learned, note=f"{TOPICS}; {REDRAWN}"),
    by_assignment("design-choices-token-assignment", in_languages_not_topics),
)
