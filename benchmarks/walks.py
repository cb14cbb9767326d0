"""How similar an instance's documents are in random order, the papers' walk and ours; and the walks' speed.

python benchmarks/walks.py --corpus CORPUS --results benchmarks/results/walks.json

CORPUS is made by `loriini prepare` in similar order. Near-duplicates are left out, as they are there.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.data.artifact import load, write_json
from loriini.data.instances import cut, shared_instance_cosine
from loriini.data.order import LOOK_BACK, plain_walk, random_order, restarts, similar_walk
from loriini.data.prepare import open_corpus
from loriini.train.hardware import describe_machine

SEEDS, REPEATS = 3, 5
Order = NDArray[np.int64]


def measure(corpus: Path) -> list[dict[str, Any]]:
    """One row an order: cosines and restarts over seeds, and the median seconds of the walk."""
    opened = open_corpus(corpus)
    neighbors_NK = np.load(load(corpus / "neighbors").path("neighbors.npy"))
    vectors_ND = np.load(load(corpus / "embeddings").path("embeddings.npy")).astype(np.float32)
    left_out = np.load(load(corpus / "duplicates").path("ids.npy"))
    orders: dict[str, Callable[[int], Order]] = {
        "random": lambda seed: random_order(len(vectors_ND), seed, left_out),
        "papers": lambda seed: plain_walk(neighbors_NK, seed, left_out),
        "similar": lambda seed: similar_walk(neighbors_NK, seed, left_out),
    }
    rows = []
    for name, make in orders.items():
        walks = [make(seed) for seed in range(SEEDS)]
        cosines = [
            shared_instance_cosine(cut(opened.tokens.offsets, walk, opened.instances.length + 1), vectors_ND)
            for walk in walks
        ]
        adjacent = [float((vectors_ND[w[:-1]] * vectors_ND[w[1:]]).sum(1).mean()) for w in walks]
        again = [restarts(walk, neighbors_NK, LOOK_BACK.get(name, 1)) / len(walk) for walk in walks]
        rows.append(
            {
                "order": name,
                "documents": len(walks[0]),
                "in_instance_cosine": float(np.mean(cosines)),
                "adjacent_cosine": float(np.mean(adjacent)),
                "restarts": None if name == "random" else float(np.mean(again)),
                "median_s": float(np.median([seconds(make) for _ in range(REPEATS)])),
            }
        )
    return rows


def seconds(make: Callable[[int], Order]) -> float:
    """How long one order takes."""
    started = time.perf_counter()
    make(0)
    return time.perf_counter() - started


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    a = parser.parse_args()
    rows = measure(a.corpus)
    for row in rows:
        print(row)
    length = open_corpus(a.corpus).instances.length
    a.results.parent.mkdir(parents=True, exist_ok=True)
    date = time.strftime("%Y-%m-%d")
    write_json(a.results, {"date": date, "machine": describe_machine(), "length": length, "rows": rows})


if __name__ == "__main__":
    main()
