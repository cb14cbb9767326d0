"""Verdicts follow from intervals alone."""

import json
import math

import numpy as np
import pytest

from loriini.compare.seeds import t_factor
from loriini.papers.reproduce.claim import (
    CLOSE,
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    below,
    close,
    deciding,
    exactly,
    judged_against_leak,
    overall,
    verdicts,
    well_below,
)
from loriini.papers.reproduce.measured import Measured
from loriini.papers.reproduce.quantities import OnText, difference


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((-1.0, -1.1, -0.9), HOLDS),
        ((1.0, 1.1, 0.9), FAILS),
        ((-1.0, 1.0, -0.5), UNDECIDED),
        ((-1.0, -1.1, 0.3), UNDECIDED),
        ((-1.0,), UNDECIDED),
        ((), UNDECIDED),
        ((math.nan, -1.0), UNDECIDED),
    ],
)
def test_a_claim_is_decided_by_its_interval(values: tuple[float, ...], verdict: str) -> None:
    assert Claim("x", dict(enumerate(values)), high=0.0).judged() == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.0, math.inf, UNDECIDED),
        (-math.inf, 0.0, UNDECIDED),
        (-0.1, 0.0, UNDECIDED),
        (0.0, 0.0, UNDECIDED),
        (-0.1, 0.1, HOLDS),
        (0.1, math.inf, FAILS),
    ],
)
def test_equal_values_on_a_bound_decide_nothing(low: float, high: float, verdict: str) -> None:
    assert Claim("x", dict.fromkeys(range(3), 0.0), low, high).judged() == verdict


def on_text(*resamples: float, value: float = -1.0) -> OnText:
    """A quantity with the same value and resamples for three seeds, apart from noise of one per cent."""
    values = {seed: value * (1 + seed / 100) for seed in range(3)}
    return OnText(values, lambda: {seed: np.array(resamples) for seed in values}, math.inf)


@pytest.mark.parametrize(
    ("quantity", "verdict"),
    [
        (on_text(-1.2, -0.8), HOLDS),
        (on_text(-1.2, 0.8), UNDECIDED),
        (on_text(math.nan, math.nan), UNDECIDED),
        (on_text(0.8, 1.2, value=1.0), FAILS),
        (on_text(-0.2, 1.2, value=1.0), UNDECIDED),
    ],
)
def test_what_is_measured_on_text_is_decided_by_seeds_and_text(quantity: OnText, verdict: str) -> None:
    claim = Claim("x", quantity, high=0.0)
    assert claim.judged() == verdict == claim.to_dict()["verdict"]


def losses(domain: str, shift: float) -> Measured:
    """Losses of 40 instances for three seeds, which differ by a common shift."""
    noise = np.random.default_rng(0).normal(5, 1, (3, 40))
    found = {"heldout": {"instance_losses": {domain: (noise + shift).tolist()[0]}}}
    return Measured({"row": dict.fromkeys(range(3), found)})


def test_resamples_are_the_same_for_all_models() -> None:
    one, other = (losses("birds", shift).loss("row") for shift in (0.0, 0.1))
    lower = difference(one, other)
    assert isinstance(lower, OnText)
    assert Claim("x", one).text_interval != pytest.approx((np.mean([*one.values()]),) * 2, abs=0.05)
    assert Claim("x", lower).text_interval == pytest.approx((-0.1, -0.1))


def test_close_is_two_sided() -> None:
    one = {0: 1.0, 1: 1.001, 2: 0.999}
    assert close("x", one, dict.fromkeys(one, 1.0), 0.02).judged() == HOLDS
    assert close("x", one, dict.fromkeys(one, 1.1), 0.02).judged() == FAILS
    assert close("x", one, dict.fromkeys(one, 0.9), 0.02).judged() == FAILS


@pytest.mark.parametrize(
    ("claim", "too_low", "judged"),
    [
        (Claim("", {0: -0.1, 1: -0.2}, high=0.0), False, True),
        (Claim("", {0: 0.1, 1: 0.2}, high=0.0), False, False),
        (Claim("", {0: 0.1, 1: 0.2}, low=0.0), True, True),
        (Claim("", {0: -0.1, 1: -0.2}, low=0.0), True, False),
        (Claim("", {0: 0.0, 1: 0.01}, -0.02, 0.02), True, False),
        (Claim("", {0: 0.1, 1: 0.2}, -0.02, 0.02), True, True),
        (Claim("", {0: 0.1, 1: 0.2}, -0.02, 0.02), False, False),
        (Claim("", {0: -0.1, 1: -0.2}, -0.02, 0.02), False, True),
    ],
)
def test_a_row_that_sees_later_tokens_can_only_be_worse(claim: Claim, too_low: bool, judged: bool) -> None:
    found = judged_against_leak(claim, too_low, "it sees more")
    assert (found == claim) == judged
    if not judged:
        assert (found.judged(), found.quantity) == (UNDECIDED, "; it sees more")


def test_well_below_is_by_more_than_what_is_close() -> None:
    three = dict.fromkeys(range(3), 3.0)
    lower = [{seed: 3.0 - by * CLOSE + seed / 1e4 for seed in three} for by in (0.5, 2.0)]
    assert [well_below("", one, three).judged() for one in lower] == [FAILS, HOLDS]


def test_what_is_computed_needs_no_seeds() -> None:
    assert exactly("x", 1.0, 1.0, 1.0).judged() == HOLDS
    assert exactly("x", 1.01, 0.0, 1.0).judged() == FAILS


def told(mean: float, deviation: float, text: float | None = None, freedom: float = math.inf) -> Claim:
    """A claim of three seeds that something is below 0, with the half-widths of its intervals."""
    values = {seed: mean + deviation * (seed - 1) / (t_factor(3)) for seed in range(3)}
    if text is not None:
        values = OnText(values, lambda: dict.fromkeys(values, mean + text * SPREAD), freedom)
    return Claim("x", values, high=0.0)


SPREAD = np.random.default_rng(0).normal(0, 1 / 1.96, 100_000)
"""Resamples whose 95 % interval is -1 to 1."""


def test_a_finding_holds_with_all_of_its_claims() -> None:
    holds, undecided, fails = told(-1, 0.5), told(-1, 2), told(1, 0.01)
    assert [claim.judged() for claim in (holds, undecided, fails)] == [HOLDS, UNDECIDED, FAILS]
    assert overall(verdicts([holds, holds])) == HOLDS
    assert overall(verdicts([holds, undecided])) == UNDECIDED
    assert overall(verdicts([holds, undecided, fails])) == FAILS
    assert overall([]) == UNDECIDED


def test_among_many_claims_one_has_to_fail_by_more() -> None:
    fails, holds = told(1, 0.4), told(-1, 0.01)
    assert overall(verdicts([fails])) == FAILS
    # Student's t at 1 - 0.05 / 10 is 3.3 times as wide
    assert overall(verdicts([fails, *[holds] * 9])) == UNDECIDED
    assert verdicts([fails, *[holds] * 9]) == [UNDECIDED, *[HOLDS] * 9]
    assert overall(verdicts([told(1, 0.2), *[holds] * 9])) == FAILS
    untested = Claim("x", {})
    assert overall(verdicts([fails, *[untested] * 9])) == FAILS
    assert deciding([holds, fails], [HOLDS, FAILS]) == 1
    assert deciding([untested, fails], [UNDECIDED, UNDECIDED]) == 1
    assert deciding([untested], [UNDECIDED]) is None
    on_both = told(1, 0.01, 0.6)
    assert (on_both.judged(), overall(verdicts([on_both, *[holds] * 9]))) == (FAILS, FAILS)
    assert overall(verdicts([told(1, 0.01, 0.8), *[holds] * 9])) == UNDECIDED  # 1.4 times as wide over text
    few = told(1, 0.01, 0.6, freedom=4)  # documents
    assert (few.judged(), overall(verdicts([few, *[holds] * 9]))) == (FAILS, UNDECIDED)  # 2.0


def test_both_sources_of_chance_are_added() -> None:
    assert told(-1, 0.8).judged() == told(-1, 0.01, 0.8).judged() == HOLDS
    assert told(-1, 0.8, 0.8).judged() == UNDECIDED  # 0.8 · √2 is above 1
    assert told(-1, 0.8, 0.5).judged() == HOLDS


def test_a_claim_without_values_is_valid_json() -> None:
    json.dumps(below("x", Measured({}).loss("a"), Measured({}).loss("b")).to_dict(), allow_nan=False)
