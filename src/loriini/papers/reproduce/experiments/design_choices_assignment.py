"""Claims and charts of the design-choices paper about which experts topics and languages are assigned to."""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from loriini.papers.published.items.design_choices import SEQUENCE_TOP2
from loriini.papers.reproduce.charts import Chart
from loriini.papers.reproduce.claims.claim import Claim, above
from loriini.papers.reproduce.claims.measured import Measured
from loriini.papers.reproduce.claims.quantities import Values
from loriini.papers.reproduce.experiments import common as c

TEXT_OF = {"topics": "topic", "languages": "language"}
"""What the domains of the held-out text of a measure are."""
EACH_TEXT = "whether both training texts lead to alike experts: here each is judged by itself"
TOKEN_TOP2 = "token, layer-wise, top-2"
"""The row of tokens that choose two experts."""
WEAK = (0.02, 0.5)
"""Range of an agreement that is there, but weak."""
NO_LANGUAGES = "not judged: the text has no languages apart from its topics"


def domains_of(m: Measured, row: str, measure: str) -> set[str]:
    """The domains of the held-out text of a measure of routes."""
    found = m.each(row, measure, "layers").values()
    return {domain for layers in found for domain in layers[0]["choice_shares"]}


def are_topics(m: Measured, row: str, measure: str) -> bool:
    """Whether this measure is of languages, and its text has domains of that of topics."""
    return measure == "languages" and not domains_of(m, row, measure).isdisjoint(domains_of(m, row, "topics"))


def agreement(m: Measured, row: str, measure: str) -> dict[int, float]:
    """Adjusted mutual information of experts and domain, mean over layers.

    None for a single domain, and for languages where these are topics.
    """
    found = {} if are_topics(m, row, measure) else m.each(row, measure, "layers")
    return {
        seed: float(np.mean([layer["domain_agreement"] for layer in layers]))
        for seed, layers in found.items()
        if len(layers[0]["choice_shares"]) > 1
    }


def agrees(
    what: str, values: Values, low: float = -math.inf, high: float = math.inf, unjudged: str = ""
) -> Iterator[Claim]:
    """A claim about an agreement, none where text of a single domain left nothing to agree with."""
    if values or unjudged:
        yield Claim(f"agreement of experts and {what}", values, low, high, unjudged=unjudged)


def no_languages(m: Measured, row: str) -> str:
    """Why agreement with languages is not judged; empty where it can be."""
    return NO_LANGUAGES if are_topics(m, row, "languages") else ""


def weakly_in_topics(m: Measured) -> Iterator[Claim]:
    """Sequences specialise weakly in topics, not in languages."""
    topics, languages = (agreement(m, SEQUENCE_TOP2, text) for text in ("topics", "languages"))
    yield from agrees("topic", topics, *WEAK)
    yield from agrees("language", languages, high=WEAK[0], unjudged=no_languages(m, SEQUENCE_TOP2))
    yield Claim(EACH_TEXT, {})


def in_languages_not_topics(m: Measured) -> Iterator[Claim]:
    """Tokens do not specialise in topics; their use differs by language."""
    topics, languages = (agreement(m, TOKEN_TOP2, text) for text in ("topics", "languages"))
    yield from agrees("topic", topics, high=WEAK[0])
    yield from agrees("language", languages, low=WEAK[0], unjudged=no_languages(m, TOKEN_TOP2))
    if topics and languages:
        yield above("agreement with language minus that with topic", languages, topics, unit="")


def frozen_as_learned(m: Measured) -> Iterator[Claim]:
    """Frozen and learned routers agree with topics, with a common expert; random ones spread them evenly."""
    for row in ("learned", "frozen"):
        yield from agrees(f"topic, {row}", agreement(m, row, "topics"), low=WEAK[0])
    yield from agrees("topic, random", agreement(m, "random", "topics"), high=WEAK[0])
    shares = {row: largest_share(m, row) for row in ("learned", "frozen", "random")}
    quantity = "largest share of an expert, mean over layers"
    for row in ("learned", "frozen"):
        yield above(f"{quantity}, {row} minus random", shares[row], shares["random"], unit="")
    yield Claim(f"{quantity}, random", shares["random"], high=0.35)


def largest_share(m: Measured, row: str) -> Values:
    """The largest load of a layer, mean over layers."""
    found = m.each(row, "topics", "layers")
    return {seed: float(np.mean([max(layer["load"]) for layer in layers])) for seed, layers in found.items()}


def assignment_charts(m: Measured) -> Iterator[Chart]:
    """Shares of the choices by topic and by language, and the agreement over layers."""
    for row in m.finished:
        for measure, what in TEXT_OF.items():
            if m.each(row, measure, "layers") and not are_topics(m, row, measure):
                yield c.route_tiles(m, row, "choice_shares", f"{row}: share by {what}", measure)
    for measure, what in TEXT_OF.items():
        by_row = {
            row: m.per_layer(row, "domain_agreement", measure)
            for row in m.finished
            if not are_topics(m, row, measure)
        }
        yield c.layer_chart(by_row, f"agreement with {what}")


def assignment_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """The two agreements."""
    return {f"agreement with {what}": agreement(m, row, measure) for measure, what in TEXT_OF.items()}
