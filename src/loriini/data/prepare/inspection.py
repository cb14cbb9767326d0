"""A finished corpus in numbers: documents in and dropped, lengths, domains, similarities.

Axes: N documents, I instances, K neighbours.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loriini.data.jobs.artifact import load_artifact
from loriini.data.prepare.arrays import NEIGHBORS, SIMILARITIES
from loriini.data.prepare.corpus import Corpus, load_stages
from loriini.data.prepare.text.stored import chosen_documents

PERCENTILES = (10, 50, 90, 99)
EXCERPT = 240


def inspect_corpus(corpus: Corpus) -> dict[str, Any]:
    """Counts, lengths, domains and similarities as one JSON value.

    Values that a corpus does not have are None: an imported one, for example, has no neighbours.
    """
    lengths_N = np.diff(corpus.tokens.offsets)
    least, most = int(lengths_N.min()), int(lengths_N.max())
    doubling = 2.0 ** np.arange(least.bit_length() - 1, most.bit_length() + 1)
    binned, _ = np.histogram(lengths_N, doubling)
    sizes_I = np.diff(corpus.instances.pieces.starts_I)
    counts = corpus.counts
    return {
        "documents": {
            "in": len(lengths_N),
            "ordered": counts["instances"]["documents_in"],
            "held_out": counts["heldout"]["documents"] if "heldout" in counts else 0,
            "dropped": dropped_by_reason(counts),
        },
        "tokens": {
            "in": int(lengths_N.sum()),
            "left_out": counts["instances"]["tokens_left_out"],
            "unknown": counts["tokens"].get("unknown"),
        },
        "instances": {"count": len(corpus.instances), "length": corpus.instances.length},
        "domains": _domains(corpus, lengths_N),
        "tokens_per_document": summary_statistics(lengths_N),
        "documents_per_instance": summary_statistics(sizes_I),
        "order": _order(corpus),
        "neighbors": _neighbors(corpus),
        "shared_instance_cosine": corpus.manifest["shared_instance_cosine"],
        "histograms": {"tokens_per_document": {"edges": doubling.tolist(), "counts": binned.tolist()}},
    }


def neighbor_examples(corpus: Corpus, shown: int = 4, neighbors: int = 3) -> list[dict[str, Any]]:
    """The beginnings of a few documents and of their nearest neighbours; [] for a corpus without neighbours.

    Each is {"id", "domain", "text", "neighbors": [{"id", "domain", "text", "similarity"}, …]}.
    """
    stages = load_stages(corpus.folder)
    nearest, documents = stages.get("neighbors"), stages.get("documents")
    if nearest is None or documents is None:
        return []
    ids_NK, similarities_NK = nearest.array(NEIGHBORS), nearest.array(SIMILARITIES)
    queries = np.unique(np.linspace(0, len(ids_NK) - 1, shown + 2).astype(int)[1:-1]).tolist()
    wanted = {*queries, *(int(i) for q in queries for i in ids_NK[q, :neighbors] if i >= 0)}
    wanted_N = np.zeros(len(ids_NK), bool)
    wanted_N[list(wanted)] = True
    texts = {
        i: {"id": document.id, "domain": document.domain, "text": document.text[:EXCERPT]}
        for i, document in zip(sorted(wanted), chosen_documents(documents, wanted_N), strict=True)
    }

    def nearest_of(query: int) -> list[dict[str, Any]]:
        pairs = zip(ids_NK[query, :neighbors], similarities_NK[query, :neighbors], strict=True)
        return [{**texts[int(i)], "similarity": round(float(s), 3)} for i, s in pairs if i >= 0]

    return [{**texts[query], "neighbors": nearest_of(query)} for query in queries]


def dropped_by_reason(counts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """How many documents a corpus drops, by reason, from what each stage counted; without those held out.

    `documents/dropped.jsonl` and `duplicates/duplicates.jsonl` list them.
    """
    stored = counts.get("documents", {})
    reasons = {
        **stored.get("skipped", {}),
        "exact duplicate": stored.get("duplicates", 0),
        "near-duplicate": counts.get("duplicates", {}).get("duplicates", 0),
    }
    return {reason: count for reason, count in reasons.items() if count}


def summary_statistics(values: ArrayLike) -> dict[str, float]:
    """Mean, percentiles and maximum."""
    values = np.asarray(values)
    percentiles = {f"p{p}": float(np.percentile(values, p)) for p in PERCENTILES}
    return {"mean": float(values.mean()), **percentiles, "max": float(values.max())}


def _domains(corpus: Corpus, lengths_N: NDArray[np.int64]) -> dict[str, dict[str, int]]:
    names, domains_N = corpus.tokens.domain_names, np.asarray(corpus.tokens.domains)
    documents = np.bincount(domains_N, minlength=len(names))
    tokens = np.bincount(domains_N, weights=lengths_N, minlength=len(names))
    return {
        name: {"documents": int(d), "tokens": int(t)}
        for name, d, t in zip(names, documents, tokens, strict=True)
    }


def _order(corpus: Corpus) -> dict[str, Any]:
    order = load_artifact(corpus.folder / "order")
    made = {name: order.counts.get(name) for name in ("restarts", "jumps")}
    settings = dict(order.settings)
    return {"method": settings.pop("order"), **settings, **made}


def _neighbors(corpus: Corpus) -> dict[str, Any] | None:
    stages = load_stages(corpus.folder)
    nearest, embeddings = stages.get("neighbors"), stages.get("embeddings")
    if nearest is None or embeddings is None:
        return None
    return {
        "k": min(nearest.settings["neighbors"], nearest.counts["documents"] - 1),
        "cells": nearest.counts["cells"],
        "encoder": corpus.manifest["settings"]["encoder"],
        "width": embeddings.counts["width"],
    }
