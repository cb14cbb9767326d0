"""Claims of the design-choices paper on measurements made up by hand."""

from math import exp, log
from typing import Any

import pytest

from loriini.papers.published import ITEMS
from loriini.papers.reproduce.claim import FAILS, HOLDS, UNDECIDED
from loriini.papers.reproduce.experiments.design_choices import (
    NO_LANGUAGES,
    SEES_ALL,
    SEQUENCE_TOP2,
    TEXT_OF,
    TOKEN_TOP2,
    WIDTHS_ALIKE,
    as_good_as_wider,
    assignment_charts,
    assignment_columns,
    in_languages_not_topics,
    one_or_two_layers,
    units_and_scopes,
    weakly_in_topics,
)
from loriini.papers.reproduce.measured import Measured

LAYERS = 4


def routes(agreement: float, domains: int, name: str = "topic") -> dict[str, Any]:
    shares = {f"{name} {i}": [0.5, 0.5] for i in range(domains)}
    return {"layers": [{"domain_agreement": agreement, "choice_shares": shares}] * LAYERS}


def test_agreement_is_claimed_where_there_are_domains_to_agree_with() -> None:
    measures = {"routes": routes(0.1, 5), "languages": routes(0.0, 1, "multi")}
    m = Measured({SEQUENCE_TOP2: {0: measures, 1: measures}})
    claimed = [claim.quantity for claim in weakly_in_topics(m) if claim.values]
    assert claimed == ["agreement of experts and topic"]
    measures["languages"] = routes(0.3, 4, "multi")
    verdicts = {claim.quantity: claim.judged() for claim in weakly_in_topics(m)}
    assert verdicts["agreement of experts and language"] == FAILS


def test_text_without_languages_decides_nothing_about_them() -> None:
    measures = {"routes": routes(0.1, 5), "languages": {}}
    for row, finding in ((SEQUENCE_TOP2, weakly_in_topics), (TOKEN_TOP2, in_languages_not_topics)):
        m = Measured({row: {0: measures, 1: measures}})
        claims = {claim.quantity: claim for claim in finding(m)}
        assert claims[f"agreement of experts and language; {NO_LANGUAGES}"].judged() == UNDECIDED
        assert claims["agreement of experts and topic"].values
        assert not assignment_columns(m, row)["agreement with language"]
        charts = {chart.get("y", chart["title"]): chart for chart in assignment_charts(m)}
        assert {f"{row}: share by topic"} == charts.keys() - {f"agreement with {w}" for w in TEXT_OF.values()}
        assert charts["agreement with topic"]["series"]
        assert not charts["agreement with language"]["series"]


def with_perplexity(perplexity: dict[str, float]) -> Measured:
    """Rows of nearly these perplexities with each of two seeds."""
    return Measured(
        {
            row: {
                seed: {"heldout": {"instance_losses": {"web": [log(value) + seed / 1000] * 2}}}
                for seed in range(2)
            }
            for row, value in perplexity.items()
        }
    )


def test_the_unit_is_compared_with_scope_and_k() -> None:
    perplexity = {
        **dict.fromkeys(ITEMS["design-choices-table1"].runs, 20.0),
        "token, layer-wise, top-1": 11.0,
        "token, layer-wise, top-2": 10.0,
        "sequence, layer-wise, top-1": 14.0,
        "sequence, layer-wise, top-2": 13.0,
        "sequence, global, top-1": 16.0,
    }

    def verdicts() -> dict[str, str]:
        m = with_perplexity(perplexity)
        return {claim.quantity: claim.judged() for claim in units_and_scopes(m)}

    gain = "gain of token over sequence minus that of"
    units = "loss of token, layer-wise, top-{0} minus that of sequence, layer-wise, top-{0}"
    perplexity["sequence, global, top-2"] = 14.0
    found = verdicts()
    assert found[units.format(1)] == found[units.format(2)] == HOLDS
    assert {verdict for quantity, verdict in found.items() if quantity.startswith(gain)} == {HOLDS}
    perplexity["sequence, global, top-2"] = 40.0  # sequences see later tokens: no failure is theirs alone
    assert verdicts()[f"{gain} layer-wise over global; {SEES_ALL}"] == UNDECIDED
    perplexity["sequence, layer-wise, top-2"] = 9.0
    assert verdicts()[f"{units.format(2)}; {SEES_ALL}"] == UNDECIDED


@pytest.mark.parametrize(
    ("sequence", "narrow", "why"), [(14.0, 14.0, ""), (13.0, 14.0, SEES_ALL), (14.0, 13.0, WIDTHS_ALIKE)]
)
def test_as_good_as_a_wider_model_is_refuted_or_not_judged(sequence: float, narrow: float, why: str) -> None:
    perplexity = {SEQUENCE_TOP2: sequence, "dense, 1x FFN width": narrow, "dense, 2x FFN width": 13.1}
    m = with_perplexity(perplexity)
    claim = as_good_as_wider(m)
    assert claim.judged() == (UNDECIDED if why else FAILS)
    assert claim.quantity.partition("; ")[2] == why
    assert ";" not in as_good_as_wider(with_perplexity({"dense, 1x FFN width": narrow})).quantity


@pytest.mark.parametrize(("more", "verdict"), [(0.0, HOLDS), (0.5, FAILS), (-0.5, FAILS)])
def test_one_or_two_layers_are_to_make_no_difference(more: float, verdict: str) -> None:
    m = with_perplexity({"one layer": 50.0, "two layers": 50.0 * exp(more)})
    (claim,) = one_or_two_layers(m)
    assert claim.judged() == verdict
