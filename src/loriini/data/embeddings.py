"""documents → one unit vector each.

The default encoder, `lsa`, needs no download: TF-IDF of words and identifiers, then a truncated SVD fitted on
a sample (latent semantic analysis, Deerwester et al. 1990). Any other name is a trained one's (`encoders`).

Axes: N documents, B documents in a chunk, D embedding width.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from loriini.data.artifact import Artifact, build
from loriini.data.documents import stored_documents
from loriini.data.encoders import Backend, Encoder, Pooling, load_encoder
from loriini.errors import InputError
from loriini.progress import progress

CHUNK = 4096
CHARACTERS = 10_000
"""Longer texts are cut, for the embedding only."""
SAMPLE = 50_000
FEATURES = 1 << 17
WIDTH = 256
WORDS = r"(?u)\w+|[^\w\s]"
"""Words, identifiers, numbers, and each other sign by itself, so that only blank texts have none."""


def write_embeddings(
    folder: Path,
    documents: Artifact,
    encoder: str = "lsa",
    seed: int = 0,
    pooling: Pooling = "mean",
    backend: Backend = "torch",
) -> Artifact:
    """Write `embeddings.npy`: float16 (N, D), one unit vector for each stored document, in their order.

    `encoder` is "lsa", whose SVD takes `seed`, or the path or name of a trained encoder, which `pooling` and
    `backend` are for (`load_encoder`). A text without direction (blank, for instance) gets the mean direction
    of the rest. Raises InputError when there are no documents or no such encoder.
    """
    count = documents.counts["documents"]
    if not count:
        raise InputError(f"{documents.folder}: holds no documents; choose other inputs")

    def write(temporary: Path) -> dict[str, Any]:
        if encoder == "lsa":
            encode = fit_lsa(_sample(_texts(documents), count, seed), seed)
        else:
            encode = load_encoder(encoder, pooling, backend)
        width = _write_vectors(temporary / "embeddings.npy", _texts(documents), count, encode)
        return {"documents": count, "width": width}

    settings = {"encoder": encoder, "seed": seed, "pooling": pooling, "backend": backend}
    return build(folder, settings, {"documents": documents.digest}, write)


def unit(vectors_BD: NDArray[np.floating]) -> NDArray[np.float32]:
    """The rows divided by their lengths; rows of zeros stay. float32 (B, D)."""
    lengths_B1 = np.linalg.norm(vectors_BD, axis=1, keepdims=True)
    return (vectors_BD / np.where(lengths_B1 > 0, lengths_B1, 1)).astype(np.float32)


def fit_lsa(texts: Iterable[str], seed: int = 0) -> Encoder:
    """Fit TF-IDF and a truncated SVD of at most 256 dimensions on `texts`; returns the encoder.

    Words are hashed into 2^17 columns, so there is no vocabulary to hold. One thread, since the order of a
    sum must not depend on how many there are: the same texts and seed give the same vectors.
    """
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.utils.extmath import randomized_svd

    words = HashingVectorizer(
        n_features=FEATURES, token_pattern=WORDS, norm=None, alternate_sign=False, dtype=np.float32
    )
    weights = TfidfTransformer(sublinear_tf=True)
    counts_BF = words.transform(texts)
    width = min(WIDTH, counts_BF.shape[0])
    with threadpool_limits(1):
        components_DF = randomized_svd(
            weights.fit_transform(counts_BF), n_components=width, n_iter=2, random_state=seed
        )[2]

    def encode(batch: list[str]) -> NDArray[np.float32]:
        with threadpool_limits(1):
            return weights.transform(words.transform(batch)) @ components_DF.T

    return encode


def _write_vectors(path: Path, texts: Iterator[str], count: int, encode: Encoder) -> int:
    """Write the unit vectors chunk by chunk; returns D. RuntimeError when the documents are not `count`."""
    done = 0
    with progress("embeddings", count) as advance:
        while batch := list(islice(texts, CHUNK)):
            vectors_BD = unit(encode(batch))
            if not done:
                shape = (count, vectors_BD.shape[1])
                vectors_ND = np.lib.format.open_memmap(path, "w+", np.float16, shape)
                sum_D = np.zeros(shape[1])
            vectors_ND[done : done + len(batch)] = vectors_BD
            sum_D += vectors_BD.sum(0)
            done += len(batch)
            advance(len(batch))
    if done != count:
        raise RuntimeError(f"{done} documents were read, the manifest has {count}")
    if not sum_D.any():
        sum_D[0] = 1
    for first in range(0, count, CHUNK):
        chunk_BD = vectors_ND[first : first + CHUNK]
        chunk_BD[~chunk_BD.any(1)] = unit(sum_D[None])[0]
    vectors_ND.flush()
    return shape[1]


def _texts(documents: Artifact) -> Iterator[str]:
    return (document.text[:CHARACTERS] for document in stored_documents(documents))


def _sample(texts: Iterator[str], count: int, seed: int) -> Iterator[str]:
    """At most 50,000 of `count` texts, drawn without replacement, in their order."""
    if count <= SAMPLE:
        return texts
    chosen = np.zeros(count, bool)
    chosen[np.random.default_rng(seed).choice(count, SAMPLE, replace=False)] = True
    return (text for text, taken in zip(texts, chosen, strict=True) if taken)
