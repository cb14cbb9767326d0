"""How fast documents are put in order, and in how much memory, at up to ten million documents.

python benchmarks/walks.py --results benchmarks/results/walks.json

Ten neighbours a document, drawn at random: no two steps lie near each other in memory, the worst case. Every
walk runs in a fresh process, on one thread, with its compilation left out.
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.common.hardware import peak_resident
from loriini.data.prepare.similarity.walks import plain_walk, similar_walk
from measuring import held_bytes, timed, write_results
from published_order import published_order

SIZES, K, REPEATS = (100_000, 1_000_000, 10_000_000), 10, 3
PUBLISHED, PUBLISHED_UP_TO = "published", 100_000
WALKS: dict[str, Callable[[NDArray[np.int32]], NDArray[np.int64]]] = {
    "plain": plain_walk,
    "similar": similar_walk,
    PUBLISHED: published_order,
}


def measure(name: str, documents: int) -> dict[str, Any]:
    """Seconds of a walk with its preparation, and the most memory it took beyond the neighbours."""
    rng = np.random.default_rng(0)
    WALKS[name](rng.integers(0, 100, (100, K), np.int32))
    neighbors_NK = rng.integers(0, documents, (documents, K), np.int32)
    before = held_bytes()
    repeats = 1 if name == PUBLISHED else REPEATS
    seconds = [timed(lambda: WALKS[name](neighbors_NK))[1] for _ in range(repeats)]
    return {
        "walk": name,
        "documents": documents,
        "k": K,
        "median_cpu_s": median(s["cpu_s"] for s in seconds),
        "documents_per_cpu_s": round(documents / median(s["cpu_s"] for s in seconds)),
        "documents_per_cpu_s_best": round(documents / min(s["cpu_s"] for s in seconds)),
        "bytes_per_document": round((peak_resident() - before) / documents, 1),
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, nargs="+", default=SIZES)
    parser.add_argument("--results", type=Path)
    a = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as fresh:
        for documents in a.documents:
            for name in WALKS:
                if name != PUBLISHED or documents <= PUBLISHED_UP_TO:
                    rows.append(fresh.submit(measure, name, documents).result())
                    print(rows[-1], flush=True)
    if a.results:
        write_results(a.results, rows=rows)


if __name__ == "__main__":
    main()
