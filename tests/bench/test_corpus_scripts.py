"""The scripts that measure orders, neighbours and tokens, tried at tiny sizes."""

import json
from pathlib import Path

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


def test_made_up_vectors_are_searched_and_ordered(vectors_ND: np.ndarray, tmp_path: Path) -> None:
    scale = script("neighbors_at_scale")
    np.save(tmp_path / "embeddings.npy", vectors_ND)
    row = scale.measure(tmp_path / "embeddings.npy", 500, 1)
    assert row["recall_at_10"] > 0.9
    assert row["in_cells"]["in_instance_cosine"] > row["random"]["in_instance_cosine"]
    assert row["in_one_cell"]["in_instance_cosine"] > row["random"]["in_instance_cosine"]


def test_both_tokenise_the_same_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenising = script("tokenising")
    for name, value in {"CHARACTERS": 20_000, "ROUNDS": 1, "WORKERS": (1,), "TOKENIZER": "bpe:300"}.items():
        monkeypatch.setattr(tokenising, name, value)
    text = tmp_path / "text.jsonl"
    lines = (json.dumps({"text": f"{i} and {i * i} make {i * i + i}. " * 20}) for i in range(100))
    text.write_text("\n".join(lines))
    (tmp_path / "work").mkdir()
    found = tokenising.measure([text], tmp_path / "work")
    assert 20_000 <= found["characters"] < 22_000
    (row,) = found["rows"]
    assert row["ratio"] == row["median_s"]["tokenizers"] / row["median_s"]["ours"]
