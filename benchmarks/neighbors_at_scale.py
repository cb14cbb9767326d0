"""Neighbours and order of up to a million vectors: seconds, memory, and what cells cost and give.

python benchmarks/neighbors_at_scale.py --embeddings EMBEDDINGS.npy --results FILE

EMBEDDINGS.npy is a corpus's (`embeddings/embeddings.npy`); the vectors are made from its first 20,000:
Gaussian noise round points between neighbours. Every size runs in a fresh process.
"""

import argparse
import json
import os
from pathlib import Path
from resource import RUSAGE_CHILDREN
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.common.hardware import peak_resident
from loriini.data.jobs.artifact import Artifact, build_artifact
from loriini.data.jobs.processes import ProcessExecutor
from loriini.data.prepare.similarity.embeddings import normalize_rows
from loriini.data.prepare.similarity.neighbors import search_cell, single_cell, write_neighbors
from loriini.data.prepare.similarity.order import window_for
from loriini.data.prepare.similarity.quality import adjacent_cosines, recall, shared_instance_cosine
from loriini.data.prepare.similarity.walks import LOOK_BACK, count_jumps, random_order, similar_walk
from loriini.data.prepare.tokenized.pieces import cut_instances
from measuring import in_fresh_process, timed, write_results

SIZES = (100_000, 1_000_000)
REAL, K, NOISE, SEED, BLOCK = 20_000, 50, 0.55, 0, 1 << 16
IN_ONE_CELL = 100_000
"""Up to this size, a single cell is measured too."""
DOCUMENTS_PER_INSTANCE = 15
"""Documents of 270 tokens fill an instance of 4096."""
VOTERS = window_for(DOCUMENTS_PER_INSTANCE)


def write_vectors(folder: Path, real_ND: NDArray[np.float32], count: int) -> Artifact:
    """An `embeddings` artifact of `count` made-up unit vectors, float16."""
    near_NK = search_cell(real_ND, single_cell(len(real_ND)), 10)[0]
    width = real_ND.shape[1]

    def write(temporary: Path) -> dict[str, Any]:
        vectors = np.lib.format.open_memmap(temporary / "embeddings.npy", "w+", np.float16, (count, width))
        for start in range(0, count, BLOCK):
            rng = np.random.default_rng((SEED, start))
            size = min(BLOCK, count - start)
            first = rng.integers(0, len(real_ND), size)
            second = near_NK[first, rng.integers(0, near_NK.shape[1], size)]
            share = rng.random((size, 1), np.float32)
            points = normalize_rows((1 - share) * real_ND[first] + share * real_ND[second])
            noise = rng.standard_normal((size, width), np.float32) * NOISE / width**0.5
            vectors[start : start + size] = normalize_rows(points + noise)
        vectors.flush()
        return {"documents": count, "width": width}

    return build_artifact(folder, {"count": count}, {}, write)


def measure(embeddings: Path, count: int, workers: int) -> dict[str, Any]:
    """One size: seconds of both stages, peak memory, recall, cosines in cells and, if small, in one."""
    real_ND = np.load(embeddings, mmap_mode="r")[:REAL].astype(np.float32)
    with TemporaryDirectory() as name:
        work = Path(name)
        made = write_vectors(work / "embeddings", real_ND, count)
        neighbors, neighbors_s = timed(
            lambda: write_neighbors(work / "neighbors", made, K, SEED, ProcessExecutor(workers))
        )
        neighbors_NK = neighbors.array("neighbors.npy")
        order_N, order_s = timed(lambda: similar_walk(neighbors_NK, SEED, window=VOTERS))
        # the workers at their largest, all at once: an upper bound
        peak = peak_resident() + workers * peak_resident(RUSAGE_CHILDREN)
        vectors_ND = made.array("embeddings.npy")
        row = {
            "documents": count,
            "width": vectors_ND.shape[1],
            "neighbors": {**neighbors_s, "k": K, "workers": workers, "cells": neighbors.counts["cells"]},
            "order": {**order_s, "restarts": count_jumps(order_N, neighbors_NK, LOOK_BACK) / count},
            "peak_gb": round(peak / 1e9, 2),
            "recall_at_10": recall(neighbors_NK, vectors_ND),
            "cosine_of_first_neighbor": first_cosine(neighbors, 0),
            "cosine_of_tenth_neighbor": first_cosine(neighbors, 9),
            "in_cells": cosines(order_N, vectors_ND),
            "random": cosines(random_order(count, SEED), vectors_ND),
        }
        if count <= IN_ONE_CELL:
            row["in_one_cell"] = cosines(
                similar_walk(search_cell(vectors_ND, single_cell(count), K)[0], window=VOTERS), vectors_ND
            )
        return row


def first_cosine(neighbors: Artifact, column: int) -> float:
    return float(neighbors.array("similarities.npy")[:, column].mean(dtype=np.float64))


def cosines(order_N: NDArray[np.int64], vectors_ND: NDArray[np.float16]) -> dict[str, float]:
    """Mean cosine of documents that share an instance, and of neighbours in the order."""
    pieces = cut_instances(np.arange(len(order_N) + 1), order_N, DOCUMENTS_PER_INSTANCE)
    return {
        "in_instance_cosine": shared_instance_cosine(pieces, vectors_ND),
        "adjacent_cosine": float(adjacent_cosines(order_N, vectors_ND).mean(dtype=np.float64)),
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--embeddings", type=Path, required=True)
    parser.add_argument("--documents", type=int, nargs="+", default=SIZES)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--results", type=Path)
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.only:
        print(json.dumps(measure(a.embeddings, a.only, a.workers)))
        return
    rows = []
    for count in a.documents:
        options = ("--embeddings", a.embeddings, "--workers", a.workers, "--only", count)
        rows.append(in_fresh_process(__file__, *options))
        print(json.dumps(rows[-1], indent=1), flush=True)
    if a.results:
        settings = {"noise": NOISE, "seed": SEED, "documents_per_instance": DOCUMENTS_PER_INSTANCE}
        write_results(a.results, settings=settings, rows=rows)


if __name__ == "__main__":
    main()
