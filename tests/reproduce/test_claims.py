"""Verdicts follow from intervals alone."""

import math

import pytest

from loriini.reproduce.claims import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    below,
    close,
    difference,
    exactly,
    overall,
    sentence,
)


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
    assert Claim("x", dict(enumerate(values)), high=0.0).verdict == verdict


def test_the_interval_is_students() -> None:
    found = Claim("x", {0: 1.0, 1: 2.0, 2: 3.0}).estimate
    assert found is not None
    assert found.high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-4)


def test_close_is_two_sided() -> None:
    one = {0: 1.0, 1: 1.001, 2: 0.999}
    assert close("x", one, dict.fromkeys(one, 1.0), 0.02).verdict == HOLDS
    assert close("x", one, dict.fromkeys(one, 1.1), 0.02).verdict == FAILS
    assert close("x", one, dict.fromkeys(one, 0.9), 0.02).verdict == FAILS


def test_differences_are_paired_by_seed() -> None:
    assert difference({0: 1.0, 2: 5.0}, {2: 3.0, 1: 0.0}) == {2: 2.0}
    noisy = {0: 1.0, 1: 5.0, 2: 9.0}
    assert below("x", {s: v - 0.1 - s / 1e3 for s, v in noisy.items()}, noisy).verdict == HOLDS


def test_what_is_computed_needs_no_seeds() -> None:
    assert exactly("x", 1.0, 1.0, 1.0).verdict == HOLDS
    assert exactly("x", 1.01, 0.0, 1.0).verdict == FAILS


def test_a_finding_holds_with_all_of_its_claims() -> None:
    assert overall([HOLDS, HOLDS]) == HOLDS
    assert overall([HOLDS, UNDECIDED]) == UNDECIDED
    assert overall([HOLDS, UNDECIDED, FAILS]) == FAILS
    assert overall([]) == UNDECIDED


def test_the_sentence_is_made_from_the_claims() -> None:
    claims = [exactly("one", 1.0, high=2.0).to_dict(), exactly("other", 3.0, high=2.0).to_dict()]
    said = sentence(FAILS, claims, "tiny")
    assert said == (
        "At scale tiny the finding does not hold. Of 2 claims 1 holds, 1 does not hold. "
        "For example: other: 3 (claimed: at most 2)."
    )
