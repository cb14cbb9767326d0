"""One line an item, the same in the page and in the terminal."""

from typing import Any

import pytest

from loriini.papers.reproduce.report import in_words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "a minus b: −0.031 (−0.050 to −0.012) nats, claimed below 0"),
        ({"range": [0.5, None], "unit": ""}, "a minus b: −0.031 (−0.050 to −0.012), claimed at least 0.500"),
        ({"interval": [None, None]}, "a minus b: −0.031 nats, claimed below 0"),
        ({"mean": 1827.4, "exact": True, "range": [1, 2000]}, "a minus b: 1,827 nats, claimed 1 to 2,000"),
    ],
)
def test_a_claim_in_words(change: dict[str, Any], words: str) -> None:
    claim = {
        "quantity": "a minus b",
        "mean": -0.031,
        "interval": [-0.05, -0.012],
        "range": [None, 0.0],
        "unit": "nats",
        "exact": False,
    }
    assert in_words(claim | change) == words
