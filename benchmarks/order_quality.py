"""Similarity of the documents that share an instance, by order: published methods, ours, and baselines.

python benchmarks/order_quality.py --text TEXT --encoder MODEL --tokenizer PATH --work WORK --results FILE

Whole documents of five domains, near-duplicates dropped, instances of 4096 tokens. WORK keeps the corpus, so
that only the first run embeds.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from loriini.data.jobs.artifact import load_artifact
from loriini.data.prepare.arrays import IDS, VECTORS, Ids, Neighbors
from loriini.data.prepare.prepare import prepare_documents
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.prepare.similarity.neighbors import SearchCell, search_cell, single_cell
from loriini.data.prepare.similarity.order import window_for
from loriini.data.prepare.similarity.quality import shared_instance_cosine
from loriini.data.prepare.similarity.walks import (
    LOOK_BACK,
    count_jumps,
    plain_walk,
    random_order,
    similar_walk,
)
from loriini.data.prepare.tokenized.pieces import cut_instances
from loriini.data.read.document import Document
from loriini.data.read.inputs import input_identity
from loriini.data.read.read import read_documents
from loriini.data.read.sampling import hash_fraction
from measuring import timed, write_results
from published_order import CLUSTER, paths, published_order

DOMAINS = ("arxiv", "books", "wiki", "web", "python")
MOST, LONGEST, LENGTH, K = 4000, 4000, 4096, 50
SEEDS, CELLS = 3, 128

Vectors = NDArray[np.float32]
Row = dict[str, Any]


@dataclass(frozen=True)
class Order:
    """How an order is made from a seed, and how its restarts are counted if it has any."""

    name: str
    make: Callable[[int], Ids]
    again: Callable[[Ids], int] | None = None
    seeds: int = 1


def short_documents(text: Path) -> Iterator[Document]:
    """Whole documents of each domain that are shorter than an instance, so that many share one."""
    for domain in DOMAINS:
        documents = read_documents([text / f"{domain}.train.jsonl.zst"])
        short = (document for document in documents if len(document.text) <= LONGEST)
        yield from sorted(short, key=lambda document: hash_fraction(document.id))[:MOST]


def exact_tour(vectors_ND: Vectors, seed: int) -> Ids:
    """From each document to the nearest of all that are left: a walk with all neighbours."""
    left = np.random.default_rng(seed).permutation(len(vectors_ND))
    left_LD = vectors_ND[left]
    order = [int(left[0])]
    here, taken = left_LD[0], np.zeros(len(left), bool)
    taken[0] = True
    for step in range(1, len(vectors_ND)):
        if step % 1000 == 0:
            left, left_LD = left[~taken], left_LD[~taken]
            taken = np.zeros(len(left), bool)
        place = int(np.where(taken, -np.inf, left_LD @ here).argmax())
        taken[place] = True
        here = left_LD[place]
        order.append(int(left[place]))
    assert np.array_equal(np.sort(order), np.arange(len(vectors_ND))), "a tour is a permutation"
    return np.array(order)


def walk_inside_cells(vectors_ND: Vectors, seed: int, window: int) -> Ids:
    """Small k-means cells one after the other, the default walk inside each."""
    kmeans = faiss.Kmeans(vectors_ND.shape[1], CELLS, niter=10, spherical=True, seed=seed)
    kmeans.train(vectors_ND)
    labels_N = kmeans.index.search(vectors_ND, 1)[1][:, 0]
    order_N = np.argsort(labels_N, kind="stable")
    walks = []
    for members_M in np.split(order_N, np.cumsum(np.bincount(labels_N, minlength=CELLS))[:-1]):
        neighbors_NK = search_cell(vectors_ND, SearchCell(members_M, members_M), K)[0]
        inside_MK = np.where(neighbors_NK < 0, -1, np.searchsorted(members_M, neighbors_NK))
        walks.append(members_M[similar_walk(inside_MK, seed, window=window)])
    return np.concatenate(walks)


def orders(vectors_ND: Vectors, neighbors_NK: Neighbors, window: int) -> list[Order]:
    """The orders to compare; `window` is the default's number of voters."""
    near_10 = np.ascontiguousarray(neighbors_NK[:, :10])

    def short_paths(order: Ids) -> int:
        return sum(len(path) < CLUSTER for path in paths(neighbors_NK))

    return [
        Order("random", lambda seed: random_order(len(vectors_ND), seed), seeds=SEEDS),
        Order("published, first step", lambda seed: published_order(neighbors_NK, merge=False), short_paths),
        Order("published", lambda seed: published_order(neighbors_NK)),
        Order(
            "plain, k=10", lambda seed: plain_walk(near_10, seed), lambda o: count_jumps(o, near_10), SEEDS
        ),
        Order(
            "plain, k=50",
            lambda seed: plain_walk(neighbors_NK, seed),
            lambda order: count_jumps(order, neighbors_NK),
            SEEDS,
        ),
        Order(
            "similar, k=50",
            lambda seed: similar_walk(neighbors_NK, seed, window=window),
            lambda order: count_jumps(order, neighbors_NK, LOOK_BACK),
            SEEDS,
        ),
        Order(
            "similar, one voter",
            lambda seed: similar_walk(neighbors_NK, seed, window=1),
            lambda order: count_jumps(order, neighbors_NK, LOOK_BACK),
            SEEDS,
        ),
        Order("similar, inside small cells", lambda seed: walk_inside_cells(vectors_ND, seed, window)),
        Order("exact tour", lambda seed: exact_tour(vectors_ND, seed)),
    ]


def adjacent_cosine(order_M: Ids, vectors_ND: Vectors) -> float:
    """The mean cosine of each document of an order and the next."""
    return float((vectors_ND[order_M[:-1]] * vectors_ND[order_M[1:]]).sum(1).mean())


def measure(order: Order, vectors_ND: Vectors, offsets: Ids) -> Row:
    """An order's row: means over its seeds, the median of its seconds."""
    order.make(0)  # compiles
    made, seconds = zip(*(timed(partial(order.make, seed)) for seed in range(order.seeds)), strict=True)
    cosines = [shared_instance_cosine(cut_instances(offsets, walk, LENGTH + 1), vectors_ND) for walk in made]
    return {
        "order": order.name,
        "in_instance_cosine": float(np.mean(cosines)),
        "adjacent_cosine": float(np.mean([adjacent_cosine(walk, vectors_ND) for walk in made])),
        "restarts": order.again and float(np.mean([order.again(walk) for walk in made]) / len(vectors_ND)),
        "seeds": order.seeds,
        "median_cpu_s": float(np.median([s["cpu_s"] for s in seconds])),
    }


def compare(corpus: Path) -> dict[str, Any]:
    """A row an order, on the documents that are no near-duplicates, and the default beside the others."""
    left_out = np.load(load_artifact(corpus / "duplicates").path(IDS))
    vectors_ND = np.load(load_artifact(corpus / "embeddings").path(VECTORS)).astype(np.float32)
    vectors_ND = np.delete(vectors_ND, left_out, axis=0)
    lengths_N = np.delete(np.diff(np.load(load_artifact(corpus / "tokens").path("offsets.npy"))), left_out)
    offsets = np.concatenate([[0], np.cumsum(lengths_N)])
    neighbors_NK = search_cell(vectors_ND, single_cell(len(vectors_ND)), K)[0]
    window = window_for(LENGTH / lengths_N.mean())
    rows = [measure(order, vectors_ND, offsets) for order in orders(vectors_ND, neighbors_NK, window)]
    cosine = {row["order"]: row["in_instance_cosine"] for row in rows}
    default = cosine["similar, k=50"]
    return {
        "documents": len(vectors_ND),
        "near_duplicates": len(left_out),
        "mean_tokens": float(lengths_N.mean()),
        "voters": window,
        "rows": rows,
        "default_over": {name: default / other for name, other in cosine.items()},
    }


def main() -> None:
    """Make the corpus, measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, required=True, help="folder of DOMAIN.train.jsonl.zst")
    parser.add_argument("--encoder", required=True, help="a sentence-transformers or Hugging Face encoder")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--results", type=Path)
    a = parser.parse_args()
    settings = PrepareSettings(
        tokenizer=a.tokenizer, encoder=a.encoder, length=LENGTH, neighbors=K, workers=2
    )
    identity = {
        **input_identity([a.text / f"{domain}.train.jsonl.zst" for domain in DOMAINS]),
        "longest": str(LONGEST),
    }
    corpus = prepare_documents(a.work, lambda drop: short_documents(a.text), identity, settings)
    results = compare(corpus.folder)
    print(json.dumps(results, indent=1))
    if a.results:
        about = {"encoder": Path(a.encoder).name, "tokenizer": Path(a.tokenizer).name, "length": LENGTH}
        write_results(a.results, **about, **results)


if __name__ == "__main__":
    main()
