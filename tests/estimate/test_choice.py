"""The micro-batch and the merge that a run's memory allows."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from loriini.common.errors import InputError
from loriini.estimate.choice import MARGIN, choose, micro_batch_sizes
from loriini.train.config import AUTO, TrainConfig
from runs import tiny_run

RUN = tiny_run("lory", batch_size=24, micro_batch_size=AUTO)


def total(size: int, again: bool, ranks: int = 1) -> float:
    """As an estimate, far above what a tiny run needs at least."""
    return 1e8 * ((100 + size * (3 if again else 10)) / ranks)


def chosen(run: TrainConfig, memory: float, ranks: int = 1) -> tuple[int, bool]:
    def memory_of(size: int, again: bool, checkpointing: bool) -> Any:
        return SimpleNamespace(total=total(size, again, ranks))

    found, _ = choose(run, run.config(64, 0), ranks, memory, memory_of)
    assert not found.has_auto_size
    assert replace(found, micro_batch_size=AUTO, model=run.model) == replace(run, micro_batch_size=AUTO)
    return found.micro_batch_size, found.model.recompute_merge


def enough(size: int, again: bool, ranks: int = 1) -> float:
    """Memory in which this just fits with the margin."""
    return 1.001 * total(size, again, ranks) / (1 - MARGIN)


def test_micro_batches_are_the_whole_share_or_powers_of_two() -> None:
    assert micro_batch_sizes(24) == [24, 8, 4, 2, 1]
    assert micro_batch_sizes(16) == [16, 8, 4, 2, 1]
    assert micro_batch_sizes(7) == [7, 1]


@pytest.mark.parametrize("size", [24, 8, 4, 1])
def test_the_largest_micro_batch_that_fits_is_taken(size: int) -> None:
    run = replace(RUN, model=replace(RUN.model, recompute_merge=False))
    assert chosen(run, enough(size, False)) == (size, False)
    least = total(1, False) / 2  # nothing fits
    assert chosen(run, least) == (1, False)


def test_a_choice_counts_each_ranks_share() -> None:
    run = replace(RUN, model=replace(RUN.model, recompute_merge=False))
    assert chosen(run, enough(12, False, ranks=2), ranks=2) == (12, False)


def test_what_is_set_stays() -> None:
    fixed = replace(RUN, micro_batch_size=4, model=replace(RUN.model, recompute_merge=True))
    assert choose(fixed, fixed.config(64, 0), 1, 1.0)[0] == fixed
    dense = tiny_run("dense", batch_size=8, micro_batch_size=4)
    assert chosen(dense, 1.0) == (4, False)


def test_experts_are_merged_again_where_memory_forces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loriini.estimate.choice.FEW", 0.0)
    run = replace(RUN, micro_batch_size=4)
    kept, again = enough(4, False), enough(4, True)
    assert chosen(run, kept) == (4, False)
    assert chosen(run, (kept + again) / 2) == (4, True)


def test_experts_are_merged_again_for_a_larger_micro_batch() -> None:
    memory = enough(8, True)
    assert total(8, False) > memory
    assert chosen(replace(RUN, batch_size=8), memory) == (8, True)


def test_nothing_is_estimated_of_documents_that_are_kept_apart() -> None:
    masked = replace(RUN, document_mask=True)
    assert chosen(replace(masked, micro_batch_size=4), 1e12) == (4, True)
    with pytest.raises(InputError, match="--micro_batch_size"):
        chosen(masked, 1e12)
