"""The scripts that measure orders, tried at tiny sizes."""

import numpy as np
import pytest
from tinybench import script

from loriini.data.prepare.similarity.embeddings import normalize_rows
from loriini.data.prepare.similarity.neighbors import search_cell, single_cell

GROUPS, EACH, WIDTH = 3, 20, 8
LABELS_N = np.arange(GROUPS * EACH) % GROUPS


@pytest.fixture(scope="module")
def vectors_ND() -> np.ndarray:
    """Unit vectors in groups far apart."""
    rng = np.random.default_rng(0)
    noise_ND = 0.1 * rng.standard_normal((len(LABELS_N), WIDTH))
    return normalize_rows((np.eye(GROUPS, WIDTH)[LABELS_N] + noise_ND).astype(np.float32))


def groups_in_turn(order_N: np.ndarray) -> int:
    """How many runs of documents of one group an order has."""
    return 1 + int((np.diff(LABELS_N[order_N]) != 0).sum())


def test_a_walk_inside_cells_leaves_a_cell_once_it_is_done(
    vectors_ND: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    quality = script("order_quality")
    monkeypatch.setattr(quality, "CELLS", GROUPS)
    order_N = quality.walk_inside_cells(vectors_ND, 0, 2)
    assert np.array_equal(np.sort(order_N), np.arange(len(vectors_ND)))
    assert groups_in_turn(order_N) == GROUPS


def test_every_order_is_measured(vectors_ND: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    quality = script("order_quality")
    monkeypatch.setattr(quality, "CELLS", GROUPS)
    monkeypatch.setattr(quality, "LENGTH", 50)
    neighbors_NK = search_cell(vectors_ND, single_cell(len(vectors_ND)), 10)[0]
    offsets = 10 * np.arange(len(vectors_ND) + 1)
    rows = {
        order.name: quality.measure(order, vectors_ND, offsets)
        for order in quality.orders(vectors_ND, neighbors_NK, 2)
    }
    cosine = {name: row["in_instance_cosine"] for name, row in rows.items()}
    assert all(found > cosine["random"] + 0.2 for name, found in cosine.items() if name != "random")
    assert rows["random"]["restarts"] is None
    assert 0 < rows["similar, k=50"]["restarts"] < 0.5


def test_walks_are_measured() -> None:
    row = script("walks").measure("similar", 1000)
    assert (row["walk"], row["documents"]) == ("similar", 1000)
    assert row["documents_per_cpu_s"] > 0
