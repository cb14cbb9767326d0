"""documents → one unit vector each.

The default encoder, `lsa`, needs no download: TF-IDF of words and identifiers, then a truncated SVD fitted on
a sample (latent semantic analysis, Deerwester et al. 1990). Any other name is a trained one's (`encoders`).

Axes: N documents, B documents in a chunk, D embedding width.
"""

import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from loriini.corpus.stored import Slice, chosen_documents, slice_documents, slices
from loriini.corpus.words import WORDS_AND_SIGNS
from loriini.errors import InputError
from loriini.jobs.arrays import new_array
from loriini.jobs.artifact import Artifact, build_artifact, parts_folder
from loriini.jobs.tasks import SERIAL, Executor, Task, run_tasks
from loriini.progress import Advance
from loriini.sources import input_identity

Encoder = Callable[[list[str]], NDArray[np.float32]]
"""Texts to vectors (N, D) of any length; D never changes."""
Pooling = Literal["mean", "cls"]
Backend = Literal["torch", "openvino"]
POOLINGS, BACKENDS = get_args(Pooling), get_args(Backend)

LSA = "lsa"
"""The name of the one encoder that is fitted, not loaded."""

VECTORS, SUM, FITTED = "embeddings.npy", "sum.npy", "encoder.pickle"
CHUNK = 4096
CHARACTERS = 10_000
"""Longer texts are cut, for the embedding only."""
SAMPLE = 50_000
FEATURES = 1 << 17
WIDTH = 256


def write_embeddings(
    folder: Path,
    documents: Artifact,
    encoder: str = "lsa",
    seed: int = 0,
    execute: Executor = SERIAL,
    pooling: Pooling = "mean",
    backend: Backend = "torch",
) -> Artifact:
    """Write `embeddings.npy`: float16 (N, D), one unit vector for each stored document, in their order.

    `encoder` is "lsa", whose SVD takes `seed`, or the path or name of a trained encoder, which `pooling` and
    `backend` are for (`load_encoder`). A task a slice of documents, for a trained encoder of at most one
    chunk; "lsa" is fitted by one task before. A text without direction (blank, for instance) gets the mean
    direction of the rest. Raises InputError when there are no documents or no such encoder.
    """
    count = documents.counts["documents"]
    if not count:
        raise InputError(f"{documents.folder}: holds no documents; choose other inputs")

    def write(temporary: Path) -> dict[str, Any]:
        parts = parts_folder(temporary)
        source: str | Path = encoder
        if encoder == LSA:
            run_tasks("encoder", [Task("lsa", partial(_fit, documents, seed))], temporary, execute)
            source = parts / "lsa" / FITTED
        encode = partial(_encode_slice, documents, source, pooling, backend)
        tasks = [
            Task(f"vectors-{i:05d}", partial(encode, part), len(part))
            for i, part in enumerate(slices(documents, None if encoder == LSA else CHUNK))
        ]
        _open_encoder.cache_clear()  # another corpus's may have had the same path
        done = run_tasks("embeddings", tasks, temporary, execute)
        _open_encoder.cache_clear()
        encoded = sum(counts["documents"] for counts in done)
        if encoded != count:
            raise RuntimeError(f"{encoded} documents were encoded, the manifest has {count}")
        width = _join_vectors([parts / task.name for task in tasks], count, temporary / VECTORS)
        return {"documents": count, "width": width}

    settings: dict[str, Any] = {"encoder": encoder}
    settings |= {"seed": seed} if encoder == LSA else {"pooling": pooling, "backend": backend}
    return build_artifact(folder, settings, {"documents": documents.digest, **_identity(encoder)}, write)


def check_encoder(name: str, backend: Backend = "torch") -> None:
    """InputError for a folder that is not there, or a backend that is not installed; loads nothing."""
    if name.startswith((".", "~", os.sep)) and not Path(name).expanduser().is_dir():
        raise InputError(f"encoder {name}: no such folder; give an encoder's, or 'lsa'")
    if name != LSA and backend == "openvino" and not find_spec("openvino"):
        raise InputError("backend 'openvino' needs its extra; run: pip install 'loriini[openvino]'")


def _identity(encoder: str) -> dict[str, str]:
    """What changes when an encoder's folder does; nothing for a name."""
    path = os.path.expanduser(encoder)
    return input_identity([path]) if encoder != LSA and os.path.isdir(path) else {}


def unit(vectors_BD: NDArray[np.floating]) -> NDArray[np.float32]:
    """The rows divided by their lengths; rows of zeros, or that are not finite, are zeros. float32 (B, D)."""
    vectors_BD = np.where(np.isfinite(vectors_BD).all(1, keepdims=True), vectors_BD, 0)
    lengths_B1 = np.linalg.norm(vectors_BD, axis=1, keepdims=True)
    return (vectors_BD / np.where(lengths_B1 > 0, lengths_B1, 1)).astype(np.float32)


@dataclass(frozen=True)
class Lsa:
    """An encoder that is fitted: words to columns, their weights, and the directions that are kept."""

    words: Any
    weights: Any
    used_S: NDArray[np.int64]
    """The columns that count: where no word of the sample falls, the directions are 0."""
    components_DS: NDArray[np.float32]

    def __call__(self, batch: list[str]) -> NDArray[np.float32]:
        """The texts' vectors (B, D), of any length."""
        with threadpool_limits(1):
            weighted_BF = self.weights.transform(self.words.transform(batch))
            return weighted_BF[:, self.used_S] @ self.components_DS.T


def fit_lsa(texts: Iterable[str], seed: int = 0) -> Lsa:
    """Fit TF-IDF and a truncated SVD of at most 256 dimensions on `texts`; returns the encoder.

    Words are hashed into 2^17 columns, so there is no vocabulary to hold. One thread, since the order of a
    sum must not depend on how many there are: the same texts and seed give the same vectors.
    """
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.utils.extmath import randomized_svd

    words = HashingVectorizer(
        n_features=FEATURES, token_pattern=WORDS_AND_SIGNS, norm=None, alternate_sign=False, dtype=np.float32
    )
    weights = TfidfTransformer(sublinear_tf=True)
    counts_BF = words.transform(texts)
    width = min(WIDTH, counts_BF.shape[0])
    with threadpool_limits(1):
        components_DF = randomized_svd(
            weights.fit_transform(counts_BF), n_components=width, n_iter=2, random_state=seed
        )[2]
    used_S = np.flatnonzero(components_DF.any(0))
    return Lsa(words, weights, used_S, components_DF[:, used_S])


def _fit(documents: Artifact, seed: int, folder: Path, advance: Advance) -> dict[str, Any]:
    """Fit the encoder on at most 50,000 documents, drawn without replacement, and keep it for the others."""
    count = documents.counts["documents"]
    chosen_N = np.zeros(count, bool)
    chosen_N[np.random.default_rng(seed).choice(count, min(count, SAMPLE), replace=False)] = True
    sample = chosen_documents(documents, chosen_N)
    with open(folder / FITTED, "wb") as file:
        pickle.dump(fit_lsa((document.text[:CHARACTERS] for document in sample), seed), file)
    return {}


def _encode_slice(
    documents: Artifact,
    source: str | Path,
    pooling: Pooling,
    backend: Backend,
    part: Slice,
    folder: Path,
    advance: Advance,
) -> dict[str, Any]:
    """Write the unit vectors of a slice's documents, and their sum."""
    texts = (document.text[:CHARACTERS] for document in slice_documents(documents, part))
    vectors: list[NDArray[np.float16]] = []
    sums: list[NDArray[np.float64]] = []
    encode = _open_encoder(source, pooling, backend)
    while batch := list(islice(texts, CHUNK)):
        vectors_BD = unit(encode(batch))
        vectors.append(vectors_BD.astype(np.float16))
        sums.append(vectors_BD.sum(0, dtype=np.float64))
        advance(len(batch))
    np.save(folder / VECTORS, np.concatenate(vectors))
    np.save(folder / SUM, np.sum(sums, 0))
    return {"documents": sum(map(len, vectors))}


def _join_vectors(parts: Sequence[Path], count: int, target: Path) -> int:
    """Write the parts' vectors one after the other, those of zeros as the mean direction; returns D."""
    sum_D = np.sum([np.load(part / SUM) for part in parts], 0)
    if not sum_D.any():
        sum_D[0] = 1
    vectors_ND = new_array(target, np.float16, (count, len(sum_D)))
    first = 0
    for part in parts:
        vectors_BD = np.load(part / VECTORS)
        vectors_BD[~vectors_BD.any(1)] = unit(sum_D[None])[0]
        vectors_ND[first : first + len(vectors_BD)] = vectors_BD
        first += len(vectors_BD)
    vectors_ND.flush()
    return len(sum_D)


@lru_cache(maxsize=1)
def _open_encoder(source: str | Path, pooling: Pooling, backend: Backend) -> Encoder:
    """A fitted encoder's file, or another's name; a process opens it once for all its tasks."""
    if isinstance(source, str):
        from loriini.corpus.encoders import load_encoder  # torch, which the default needs not

        return load_encoder(source, pooling, backend)
    with open(source, "rb") as file:
        encoder: Lsa = pickle.load(file)
    return encoder
