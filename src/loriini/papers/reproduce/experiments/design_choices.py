"""The design-choices paper's items."""

import math
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from loriini.papers.reproduce.charts import Chart
from loriini.papers.reproduce.claim import (
    Claim,
    above,
    below,
    close,
    is_clearly_above,
    judged_against_leak,
    not_judged,
)
from loriini.papers.reproduce.experiments import common as c
from loriini.papers.reproduce.measured import Measured
from loriini.papers.reproduce.plan import Experiment
from loriini.papers.reproduce.quantities import Values, difference, mean_of

SEQUENCE_TOP2, TOKEN_TOP2 = "sequence, layer-wise, top-2", "token, layer-wise, top-2"
"""Rows of table 1 that figures and other tables are about too."""
TOLERANCE = 0.03
"""Nats up to which designs count as "about as good"; the paper's tables call 1 to 3 % so."""
about_as_good = partial(close, within=TOLERANCE)
UNUSED = 0.1
"""Fraction of the even share: an expert with less of a layer's choices has collapsed."""
LAST = 0.2
"""The last part of training, over which the use of experts is averaged."""
UNIT = "token over sequence"
WIDTHS_ALIKE = "not judged, as twice the dense width is not shown to gain more than the margin"
SEES_ALL = (
    "not judged: routing by the whole sequence sees later tokens, so its loss is too low to show more than "
    "that it is worse"
)
TEXT_OF = {"routes": "topic", "languages": "language"}
"""Measure → what the domains of its held-out text are."""
EACH_TEXT = "whether both training texts lead to alike experts: here each is judged by itself"
WEAK = (0.02, 0.5)
"""Range of an agreement that is there, but weak."""
NO_LANGUAGES = "not judged: the text has no languages apart from its topics"


def units_and_scopes(m: Measured) -> Iterator[Claim]:
    """Table 1's comparisons with dense widths, and of units, scopes and k: the unit changes most."""
    loss = partial(c.compare, below, "loss", m.loss)
    yield loss(TOKEN_TOP2, "dense, 4x FFN width")
    yield loss("token, layer-wise, top-1", "dense, 1x FFN width")
    yield as_good_as_wider(m)
    for k in (2, 1):
        claim = loss(f"token, layer-wise, top-{k}", f"sequence, layer-wise, top-{k}")
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
    if gap and not is_clearly_above(difference(narrow, wide), TOLERANCE):
        return not_judged(claim, WIDTHS_ALIKE)
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
    loss = partial(c.compare, below, "loss", m.loss)
    yield loss("sequence (4, 3)", "sequence (4, 2)")
    yield loss("sequence (4, 2)", "sequence (4, 1)")
    yield loss("token (4, 2)", "token (2, 2)")
    yield loss("token (6, 2)", "token (4, 2)")
    gains = (difference(m.loss(f"{unit} (2, 2)"), m.loss(f"{unit} (6, 2)")) for unit in ("token", "sequence"))
    yield above("gain from 2 to 6 experts, token minus sequence", *gains)


def learned_frozen_random(m: Measured) -> Iterator[Claim]:
    """Frozen about as good as learned, both better than random; language about as good as learned."""
    for unit in ("sequence", "token"):
        learned, frozen, random = (
            f"{unit}, layer-wise, {scorer}" for scorer in ("learned", "frozen", "random")
        )
        yield c.compare(about_as_good, "loss", m.loss, frozen, learned)
        yield c.compare(below, "loss", m.loss, learned, random)
        yield c.compare(below, "loss", m.loss, frozen, random)
    language, learned = (f"sequence, global, {scorer}" for scorer in ("language", "learned"))
    if m.loss(language):
        claim = c.compare(about_as_good, "loss", m.loss, language, learned)
        yield judged_against_leak(claim, too_low=False, why=SEES_ALL)


def collapsed(m: Measured, row: str, layers: slice = slice(None)) -> Values:
    """The share of experts that get less than a tenth of the even share at the end of training."""
    late = {seed: load_LE[layers] for seed, load_LE in late_load(m, row).items()}
    return {seed: float((x < UNUSED / x.shape[1]).mean()) for seed, x in late.items() if len(x)}


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
    share = partial(collapsed, m)
    yield c.compare(partial(below, unit=""), "share of collapsed experts", share, balanced, without)
    yield c.compare(about_as_good, "loss", m.loss, without, balanced)


RECOVERED = "whether experts recover from collapse: records of few choices do not show it"


def collapse_and_recovery(m: Measured) -> Iterator[Claim]:
    """Experts collapse, most in the first and last layer, and some recover."""
    yield Claim("share of collapsed experts at the end", collapsed(m, SEQUENCE_TOP2), low=0.01)
    yield from collapsed_outside(m, SEQUENCE_TOP2)
    yield Claim(RECOVERED, {})


def collapsed_outside(m: Measured, row: str) -> Iterator[Claim]:
    """More experts collapse in the first and last layer than in those between, if there are any."""
    outer = mean_of([collapsed(m, row, part) for part in (slice(0, 1), slice(-1, None))])
    inner = collapsed(m, row, slice(1, -1))
    if inner:
        yield above("share of collapsed experts, first and last layer less the others", outer, inner, unit="")


def stays_in_use(m: Measured) -> Iterator[Claim]:
    """Every expert of every layer keeps a share of the choices."""
    (row,) = m.rows
    yield Claim("smallest load relative to the even share", least_load(m, row), low=UNUSED)


def load_charts(m: Measured) -> Iterator[Chart]:
    for row in m.finished:
        yield from c.expert_charts(m, row, "load", "share of the choices")


def collapse_columns(m: Measured, row: str) -> Mapping[str, Values]:
    return {
        m.text: c.exp(m.loss(row)),
        "collapsed experts, %": c.scaled(collapsed(m, row), 100),
        "smallest load, of the even share": least_load(m, row),
    }


def one_or_two_layers(m: Measured) -> Iterator[Claim]:
    """One or two layers make no difference (appendix A.2)."""
    yield c.compare(about_as_good, "loss", m.loss, "two layers", "one layer")


def agreement(m: Measured, row: str, measure: str = "routes") -> dict[int, float]:
    """Adjusted mutual information of experts and domain, mean over layers; empty for a single domain."""
    return {
        seed: float(np.mean([layer["domain_agreement"] for layer in layers]))
        for seed, layers in m.each(row, measure, "layers").items()
        if len(layers[0]["choice_shares"]) > 1
    }


def agrees(
    what: str, values: Values, low: float = -math.inf, high: float = math.inf, unjudged: str = ""
) -> Iterator[Claim]:
    """A claim about an agreement; none if the text has a single domain, so that `values` are empty."""
    claim = Claim(f"agreement of experts and {what}", values, low, high)
    if values or unjudged:
        yield not_judged(claim, unjudged) if unjudged else claim


def no_languages(m: Measured, row: str) -> str:
    """Why agreement with languages is not judged; empty where it can be."""
    topics, languages = (m.each(row, measure, "layers") for measure in TEXT_OF)
    return NO_LANGUAGES if topics and not languages else ""


def weakly_in_topics(m: Measured) -> Iterator[Claim]:
    """Sequences specialise weakly in topics, not in languages."""
    topics, languages = (agreement(m, SEQUENCE_TOP2, measure) for measure in TEXT_OF)
    yield from agrees("topic", topics, *WEAK)
    yield from agrees("language", languages, high=WEAK[0], unjudged=no_languages(m, SEQUENCE_TOP2))
    yield Claim(EACH_TEXT, {})


def in_languages_not_topics(m: Measured) -> Iterator[Claim]:
    """Tokens do not specialise in topics; their use differs by language."""
    topics, languages = (agreement(m, TOKEN_TOP2, measure) for measure in TEXT_OF)
    yield from agrees("topic", topics, high=WEAK[0])
    yield from agrees("language", languages, low=WEAK[0], unjudged=no_languages(m, TOKEN_TOP2))
    if topics and languages:
        yield above("agreement with language minus that with topic", languages, topics, unit="")


def frozen_as_learned(m: Measured) -> Iterator[Claim]:
    """Frozen and learned routers agree with topics, with a common expert; random ones spread them evenly."""
    for row in ("learned", "frozen"):
        yield from agrees(f"topic, {row}", agreement(m, row), low=WEAK[0])
    yield from agrees("topic, random", agreement(m, "random"), high=WEAK[0])
    shares = {
        row: c.layer_mean(m.per_layer(row, lambda layer: max(layer["load"])))
        for row in ("learned", "frozen", "random")
    }
    quantity = "largest share of an expert, mean over layers"
    for row in ("learned", "frozen"):
        yield above(f"{quantity}, {row} minus random", shares[row], shares["random"], unit="")
    yield Claim(f"{quantity}, random", shares["random"], high=0.35)


def assignment_charts(m: Measured) -> Iterator[Chart]:
    """Shares of the choices by topic and by language, and the agreement over layers."""
    for row in m.finished:
        for measure, what in TEXT_OF.items():
            if m.each(row, measure, "layers"):
                yield c.route_tiles(m, row, "choice_shares", f"{row}: share by {what}", measure)
    for measure, what in TEXT_OF.items():
        by_row = {row: m.per_layer(row, "domain_agreement", measure) for row in m.finished}
        yield c.layer_chart(by_row, f"agreement with {what}")


def assignment_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """The two agreements."""
    return {f"agreement with {what}": agreement(m, row, measure) for measure, what in TEXT_OF.items()}


by_perplexity = partial(Experiment, measures=("heldout",), columns=c.text_columns)
by_load = partial(Experiment, measures=("heldout",), columns=collapse_columns, charts=load_charts)
by_assignment = partial(
    Experiment, measures=tuple(TEXT_OF), columns=assignment_columns, charts=assignment_charts
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
    by_assignment("design-choices-random-assignment", frozen_as_learned),
    by_assignment("design-choices-token-assignment", in_languages_not_topics),
)
