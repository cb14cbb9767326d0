"""Sections of a comparison's page."""

from typing import Any

from loriini.compare.sections import cells_with_equal_steps


def test_curves_are_averaged_over_seeds_with_the_same_steps() -> None:
    def cell(seed: int, state: str, steps: int) -> dict[str, Any]:
        return {"seed": seed, "state": state, "steps": steps}

    finished = [cell(0, "finished", 1000), cell(1, "finished", 1000)]
    assert cells_with_equal_steps([*finished, cell(2, "diverged", 40)]) == finished
    stopped = [cell(0, "failed", 30), cell(1, "diverged", 40)]
    assert cells_with_equal_steps(stopped) == stopped[1:]
