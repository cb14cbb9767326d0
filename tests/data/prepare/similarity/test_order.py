from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loriini.data.jobs.artifact import Artifact, build_artifact
from loriini.data.prepare.similarity.order import window_for, write_order
from loriini.data.prepare.similarity.walks import DEFAULT_WINDOW, plain_walk, random_order, similar_walk

RING = ((np.arange(30)[:, None] + [1, 2]) % 30).astype(np.int32)
REPEATED, HELD_OUT = [7], [3]
LEFT_OUT = [3, 7]


def artifact(folder: Path, file: str, array: NDArray[np.integer]) -> Artifact:
    def write(temporary: Path) -> dict[str, int]:
        np.save(temporary / file, array)
        return {"documents": len(array)}

    return build_artifact(folder, {}, {}, write)


def stages(folder: Path) -> list[Artifact]:
    """Neighbours, duplicates and held-out documents."""
    left_out = (("duplicates", REPEATED), ("heldout", HELD_OUT))
    neighbors = artifact(folder / "neighbors", "neighbors.npy", RING)
    return [neighbors, *(artifact(folder / name, "ids.npy", np.array(ids)) for name, ids in left_out)]


def test_each_method_writes_its_order_without_duplicates_and_held_out_documents(tmp_path: Path) -> None:
    neighbors, *without = stages(tmp_path)
    expected = {
        "similar": similar_walk(RING, 1, LEFT_OUT, window=2),
        "plain": plain_walk(RING, 1, LEFT_OUT),
        "random": random_order(30, 1, LEFT_OUT),
    }
    for method, order in expected.items():
        written = write_order(tmp_path / method, neighbors, *without, method, 1, window=2)
        assert np.array_equal(np.load(written.path("order.npy")), order)
        assert (written.counts["documents_in"], written.counts["documents"]) == (30, 28)
        assert ("restarts" in written.counts) == (method != "random")
    similar = write_order(tmp_path / "similar", neighbors, *without, "similar", 1, window=2)
    assert similar.counts["restarts"] == 0


def test_the_window_that_is_asked_for_votes(tmp_path: Path) -> None:
    rng, none = np.random.default_rng(0), np.empty(0, np.int64)
    linked = np.stack([rng.permutation(60)[:8] for _ in range(60)]).astype(np.int32)
    found = [artifact(tmp_path / "neighbors", "neighbors.npy", linked)]
    found += [artifact(tmp_path / name, "ids.npy", none) for name in ("duplicates", "heldout")]
    orders = []
    for window in (1, DEFAULT_WINDOW, 20):
        written = write_order(tmp_path / f"{window}", *found, "similar", 1, window=window)
        orders.append(np.load(written.path("order.npy")))
        assert np.array_equal(orders[-1], similar_walk(linked, 1, window=window))
    assert len({order.tobytes() for order in orders}) == 3


def test_half_the_documents_of_an_instance_vote() -> None:
    assert [window_for(x) for x in (0.1, 1, 4, 15, 1000)] == [1, 1, 2, 8, 50]
