"""The scripts that measure orders, tried at tiny sizes."""

import numpy as np
import pytest
from tinybench import script

from loriini.data.prepare.similarity.embeddings import normalize_rows
from loriini.data.prepare.similarity.neighbors import search_cell, single_cell

GROUPS, EACH, WIDTH = 3, 20, 8
LABELS_N = np.arange(GROUPS * EACH) % GROUPS


def test_every_order_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """On unit vectors in groups far apart."""
    noise_ND = 0.1 * np.random.default_rng(0).standard_normal((len(LABELS_N), WIDTH))
    vectors_ND = normalize_rows((np.eye(GROUPS, WIDTH)[LABELS_N] + noise_ND).astype(np.float32))
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


def test_walks_are_measured() -> None:
    row = script("walks").measure("similar", 1000)
    assert (row["walk"], row["documents"]) == ("similar", 1000)
    assert row["documents_per_cpu_s"] > 0
