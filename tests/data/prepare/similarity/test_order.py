from pathlib import Path

import numpy as np

from data.prepare.arrays import stage_of
from loriini.data.jobs.artifact import Artifact
from loriini.data.prepare.similarity.order import window_for, write_order
from loriini.data.prepare.similarity.walks import plain_walk, random_order, similar_walk

LINKED = np.random.default_rng(0).permuted(np.tile(np.arange(30, dtype=np.int32), (30, 1)), axis=1)[:, :8]
"""Links on which `similar_walk` depends on its window."""
REPEATED, HELD_OUT = [7], [3]
LEFT_OUT = [3, 7]


def stages(folder: Path) -> list[Artifact]:
    """Neighbours, duplicates and held-out documents."""
    left_out = (("duplicates", REPEATED), ("heldout", HELD_OUT))
    neighbors = stage_of(folder / "neighbors", len(LINKED), neighbors=LINKED)
    return [neighbors, *(stage_of(folder / name, len(ids), ids=np.array(ids)) for name, ids in left_out)]


def test_each_method_writes_its_order_without_duplicates_and_held_out_documents(tmp_path: Path) -> None:
    neighbors, *without = stages(tmp_path)
    expected = {
        "similar": similar_walk(LINKED, 1, LEFT_OUT, window=2),
        "plain": plain_walk(LINKED, 1, LEFT_OUT),
        "random": random_order(30, 1, LEFT_OUT),
    }
    assert not np.array_equal(expected["similar"], similar_walk(LINKED, 1, LEFT_OUT, window=1))
    for method, order in expected.items():
        written = write_order(tmp_path / method, neighbors, *without, method, 1, window=2)
        assert np.array_equal(np.load(written.path("order.npy")), order)
        assert (written.counts["documents_in"], written.counts["documents"]) == (30, 28)
        assert ("restarts" in written.counts) == (method != "random")


def test_half_the_documents_of_an_instance_vote() -> None:
    assert [window_for(x) for x in (0.1, 1, 4, 15, 1000)] == [1, 1, 2, 8, 50]
