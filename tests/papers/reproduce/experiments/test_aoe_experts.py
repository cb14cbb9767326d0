"""Claims about the experts of AoE: activation norms over training, and loads."""

import numpy as np
import pytest

from loriini.papers.reproduce.claims.claim import FAILS, HOLDS, UNDECIDED
from loriini.papers.reproduce.claims.measured import Measured
from loriini.papers.reproduce.experiments.aoe import load_columns, norms_alike


@pytest.mark.parametrize(
    ("start", "end", "verdict"), [(0.6, 0.9, HOLDS), (0.9, 0.6, FAILS), (0.75, 0.75, UNDECIDED)]
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


def test_loads_are_means_over_layers_here_and_as_published() -> None:
    """The paper prints a sum over twelve layers."""
    layers = [{"load_range": 0.1, "load_entropy": 2.0, "confidence_entropy": {"birds": 1.0}}] * 4
    row = "2 MoE + aux"
    found = load_columns(Measured({row: {0: {"routes": {"layers": layers}}}}), row)
    assert found["highest minus lowest load, mean"] == {0: pytest.approx(0.1)}
    assert found["highest minus lowest load, mean, as published"] == {0: pytest.approx(1.49 / 12)}
    assert not load_columns(Measured({}), "1 MoE")["highest minus lowest load, mean, as published"]
