"""Claims of Lory's items."""

from dataclasses import replace
from typing import Any

import pytest

from loriini.papers.reproduce.experiments.lory import (
    FROM_SCRATCH,
    PAPER_SEGMENTS,
    SEES_LATER_TOKENS,
    gain_curves,
    tokens_to_reach,
    training_against_expert_choice,
    utilisation,
)
from loriini.papers.reproduce.measured import Measured
from loriini.papers.reproduce.measures import active
from loriini.recipes.redesign import with_design
from loriini.train.launch import resolve_recipe


def trained(**found: Any) -> dict[int, Any]:
    return {0: {"training": found}}


@pytest.mark.parametrize(("wanted", "share"), [(10.0, 0.1), (5.5, 0.6), (5.0, 0.6), (0.5, 1.0)])
def test_the_share_of_training_after_which_a_loss_is_reached(wanted: float, share: float) -> None:
    """The loss falls from 10 to 1 in ten points."""
    curve = {"tokens": list(range(1, 11)), "loss": [float(loss) for loss in range(10, 0, -1)]}
    found = tokens_to_reach(Measured({"row": trained(curve=curve)}), "row", {0: wanted})
    assert found == {0: pytest.approx(share)}


def test_windows_without_a_finite_loss_have_no_gain() -> None:
    rows = {"0.3B (sim batch)": [3.0, None, 2.0], "0.3B/8E (sim batch)": [2.0, 1.0, 1.5]}
    measured = Measured({row: trained(curve={"loss": loss}) for row, loss in rows.items()})
    assert gain_curves(measured, "sim")[0] == pytest.approx([1.0, float("nan"), 0.5], nan_ok=True)


@pytest.mark.parametrize(("of_choice", "judged"), [(2.2, True), (2.0, False), (1.5, False), (None, False)])
def test_a_loss_that_sees_later_tokens_can_only_be_worse(of_choice: float | None, judged: bool) -> None:
    own = dict.fromkeys(("Lory", FROM_SCRATCH), trained(training_loss=2.0))
    of_others = dict.fromkeys(("EC, segment-level", "EC, token-level"), trained(training_loss=of_choice))
    claims = list(training_against_expert_choice(Measured({**own, **of_others})))
    assert len(claims) == 3
    for claim in claims:
        assert bool(claim.values) == judged
        measured = of_choice is not None
        assert (SEES_LATER_TOKENS in claim.quantity) == (measured and not judged)


def in_use(segments: float) -> Measured:
    """Mixtures of which ever more experts are active, in windows of so many segments."""
    window = {"shares": [[i / 20] for i in range(20)], "units": segments}
    return Measured({f"1.5B/{experts}E": trained(active=window) for experts in (8, 16, 32)})


def test_shares_are_judged_only_in_windows_as_long_as_the_papers() -> None:
    *unknown, grows = utilisation(in_use(160))
    assert not any(claim.values for claim in unknown)
    assert grows.values == {0: pytest.approx((13 + 19) / 40 - (6 + 12) / 40)}
    *known, grows = utilisation(in_use(PAPER_SEGMENTS))
    assert [claim.values[0] for claim in known] == pytest.approx([0.125, 0.125, 0.925])


@pytest.mark.parametrize(("design", "segments"), [("lory", 3 * 2 * 4), ("smear", 3 * 2)])
def test_windows_are_counted_in_segments(design: str, segments: int) -> None:
    run = replace(with_design(resolve_recipe("tiny-lory", ()), design), batch_size=2)
    run = replace(run, length=4 * run.routing.segment_length)
    steps = [{"active": [1 << (i % 2)], "experts": 2, "tokens": i} for i in range(6)]
    found = active(run, steps, 3)
    assert (found["units"], found["steps"], found["shares"]) == (segments, 3, [[1.0], [1.0]])
