"""Claims and verdicts in words."""

import numpy as np
import pytest

from loriini.papers.reproduce.claims.claim import FAILS, Claim, exactly
from loriini.papers.reproduce.claims.quantities import OnText
from loriini.papers.reproduce.claims.wording import in_words, measured_text, number, sentence


def test_a_claim_that_nothing_tests_states_no_range() -> None:
    assert in_words(Claim("x", {}).to_dict()) == "x: not tested (claimed: not stated)"


def test_both_intervals_are_printed() -> None:
    values = {seed: -1 - seed / 100 for seed in range(3)}
    quantity = OnText(values, lambda: {seed: np.full(2, -1.5) for seed in values}, 9.0)
    said = measured_text(Claim("x", quantity, unit="nats").to_dict())
    assert said == "−1.01 (seeds −1.03 to −0.985, text −1.5 to −1.5) nats"


def test_the_sentence_is_made_from_the_claims() -> None:
    claims = [exactly("one", 1.0, high=2.0).to_dict(), exactly("other", 3.0, high=2.0).to_dict()]
    said = sentence(FAILS, claims, "tiny")
    assert said == (
        "At scale tiny the finding does not hold. Of 2 claims 1 holds, 1 does not hold. "
        "For example: other: 3 (claimed: at most 2)."
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.02, "0.020"),
        (-1.234, "−1.23"),
        (999.4, "999"),
        (999.7, "1,000"),
        (-999.7, "−1,000"),
        (12345.6, "12,346"),
    ],
)
def test_numbers_have_three_or_four_digits(value: float, text: str) -> None:
    assert number(value) == text
