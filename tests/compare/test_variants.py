"""Which variants of a sweep stand for their design, and differences from a baseline."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from loriini.compare.results import chosen, differences_from, with_mean
from loriini.evaluate.intervals import differences_by_domain


def variant(design: str, settings: Mapping[str, str], seeds: Sequence[int], loss: float) -> dict[str, Any]:
    """A variant over the seeds that finished."""
    name = " ".join([design, *settings.values()])
    one = {"name": name, "design": design, "settings": settings, "finished_seeds": [*seeds]}
    return {**one, "training_loss": {"mean": loss}}


def test_the_best_rate_is_chosen_by_training_loss() -> None:
    def swept(design: str, losses: Sequence[float], segment: str = "8") -> list[dict[str, Any]]:
        settings = [
            {"routing.segment_length": segment, "optimizer.learning_rate": f"{i}e-3"}
            for i in range(1, 1 + len(losses))
        ]
        return [variant(design, own, [0], loss) for own, loss in zip(settings, losses, strict=True)]

    first, second, third = swept("a", (3, 2, 2.5)), swept("b", (3, 2, 1)), swept("b", (1, 2, 3), "16")
    assert chosen([*first, *second, *third]) == {"a 8 2e-3", "b 8 3e-3", "b 16 1e-3"}
    assert chosen([{**first[0], "width": 32}, {**first[1], "width": 64}]) == {"a 8 1e-3", "a 8 2e-3"}


def test_a_rate_at_which_seeds_diverged_is_not_chosen_for_its_survivors() -> None:
    def at_rate(rate: str, finished: Sequence[int], loss: float) -> dict[str, Any]:
        return variant("a", {"optimizer.learning_rate": rate}, finished, loss)

    family = [at_rate("1e-3", range(3), 3), at_rate("2e-3", range(3), 2.5), at_rate("4e-3", [1], 2)]
    assert chosen(family) == {"a 2e-3"}
    none = at_rate("8e-3", [], 1)
    del none["training_loss"]
    assert chosen([none, family[2]]) == {"a 4e-3"}


def score(loss: float) -> dict[str, Any]:
    """A training on a domain of three instances."""
    return {"perplexity": with_mean({"a": math.exp(loss)}), "instance_losses": {"a": [loss] * 3}}


def test_a_seed_whose_perplexity_is_not_finite_is_in_no_difference() -> None:
    scores = {
        "dense": {0: score(2.0), 1: score(2.0), 2: score(math.nan)},
        "lory": {0: score(1.0), 1: score(math.inf), 2: score(1.0)},
        "diverged": {0: score(math.nan)},
    }
    found = differences_from("dense", scores, differences_by_domain)
    assert set(found) == {"lory"}
    assert found["lory"]["paired_seeds"] == [0]
    assert math.isclose(found["lory"]["difference"]["a"]["change"], math.expm1(-1.0))
