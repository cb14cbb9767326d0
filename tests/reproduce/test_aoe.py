"""Claims of the AoE paper's items."""

import numpy as np
import pytest

from loriini.reproduce.aoe_rows import norms_alike
from loriini.reproduce.claims import FAILS, HOLDS
from loriini.reproduce.measured import Measured


@pytest.mark.parametrize(
    ("start", "end", "verdict"), [(0.6, 0.9, HOLDS), (0.9, 0.6, FAILS), (0.75, 0.75, FAILS)]
)
def test_norms_catch_up_only_where_they_are_more_alike_at_the_end(
    start: float, end: float, verdict: str
) -> None:
    """The lowest over the highest of a layer's two norms goes from `start` to `end` in 20 records."""
    lowest = np.linspace(start, end, 20).tolist()
    norms = {"norms": {"tokens": list(range(20)), "values": [[[low, 1.0]] for low in lowest]}}
    seeds = {seed: {"training": norms} for seed in range(3)}
    *_, catches_up = norms_alike(Measured(dict.fromkeys(("9 AoE 256", "10 AoE 256 + aux"), seeds)))
    assert catches_up.verdict == verdict
