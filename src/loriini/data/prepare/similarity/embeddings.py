"""The `embeddings` stage: one unit vector per document, by `lsa` or a trained encoder.

Axes: N documents, B documents in a batch, D embedding width.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from loriini.common.progress import Advance
from loriini.data.jobs.artifact import Artifact, build_artifact, file_hashes, new_array
from loriini.data.jobs.tasks import SERIAL, Executor, Task, run_tasks, task_counts
from loriini.data.prepare.arrays import VECTORS
from loriini.data.prepare.settings import LSA, Pooling
from loriini.data.prepare.similarity import lsa
from loriini.data.prepare.similarity.lsa import LsaEncoder, count_words, fit_lsa
from loriini.data.prepare.text.stored import Slice, chosen_slices, slice_documents, slices
from loriini.data.read.files import files_at

if TYPE_CHECKING:
    from loriini.data.prepare.similarity.encoders import Encoder

SUM, FITTED, COUNTS = "sum.npy", "lsa.npz", "counts.npz"
TEXTS_AT_ONCE = 4096
TEXT_CHARACTERS = 10_000
"""Only the beginning of longer documents is embedded."""
SAMPLE = 50_000
"""`lsa` is fitted on at most this many documents."""


def write_embeddings(
    folder: Path, documents: Artifact, encoder: str, seed: int, pooling: Pooling, execute: Executor = SERIAL
) -> Artifact:
    """Write `embeddings.npy`: float16 (N, D), one unit vector per stored document, in their order.

    A document whose vector is zero or not finite (a blank one, for instance) gets the mean direction. A task
    encodes a slice of documents on one thread, whatever the executor, so that the bytes do not depend on it.
    `encoder` is `lsa`, which is fitted with `seed`, or the path or name of a trained encoder, which uses
    `pooling` (`loriini.data.prepare.similarity.encoders`).

    Raises:
        InputError: there is no such encoder.
    """
    files = _identity(encoder)
    settings: dict[str, Any] = {"encoder": "path" if files else encoder}
    settings |= {"seed": seed} if encoder == LSA else {"pooling": pooling}
    inputs = {"documents": documents.digest, **files}
    write = partial(_write, documents, encoder, settings, execute)
    return build_artifact(folder, settings, inputs, write)


def normalize_rows(vectors_BD: NDArray[np.floating]) -> NDArray[np.float32]:
    """The rows divided by their lengths, float32 (B, D); zeros for a row that is zero or not finite."""
    vectors_BD = np.where(np.isfinite(vectors_BD).all(1, keepdims=True), vectors_BD, 0)
    lengths_B1 = np.linalg.norm(vectors_BD, axis=1, keepdims=True)
    return (vectors_BD / np.where(lengths_B1 > 0, lengths_B1, 1)).astype(np.float32)


def _write(
    documents: Artifact, encoder: str, settings: dict[str, Any], execute: Executor, folder: Path
) -> dict[str, Any]:
    if encoder == LSA:
        tasks = _lsa_tasks(documents, settings["seed"], execute, folder)
    else:
        tasks = [
            Task(
                f"vectors-{i:05d}",
                partial(_trained_slice, documents, encoder, settings["pooling"], part),
                len(part),
            )
            for i, part in enumerate(slices(documents, TEXTS_AT_ONCE))
        ]
    for load in (_load_lsa, _load_trained):  # another corpus's encoder may have had the same path
        load.cache_clear()
    done = run_tasks("embeddings", tasks, folder, execute)
    count = sum(task_counts(output)["documents"] for output in done)
    width = _join_vectors(done, count, folder / VECTORS)
    return {"documents": count, "width": width}


def _identity(encoder: str) -> dict[str, str]:
    """Hashes of an encoder's files by their names in its folder; {} for `lsa` and for a Hub id."""
    folder = Path(os.path.expanduser(encoder))
    if encoder == LSA or not folder.is_dir():
        return {}
    return file_hashes(folder, [os.path.relpath(path, folder) for path in files_at(folder) or ()])


def _lsa_tasks(documents: Artifact, seed: int, execute: Executor, folder: Path) -> list[Task]:
    """Fit `lsa` on a sample of the documents, drawn without replacement; returns the tasks that encode.

    Tasks count the words. One more does the rest of the fit, with a thread per worker for its products. If
    the sample is all documents, their words are not counted again.
    """
    count = documents.counts["documents"]
    chosen_N = np.zeros(count, bool)
    chosen_N[np.random.default_rng(seed).choice(count, min(count, SAMPLE), replace=False)] = True
    every = slices(documents)
    sampled: Iterable[tuple[Slice, NDArray[np.bool_] | None]] = (
        [(part, None) for part in every] if chosen_N.all() else chosen_slices(documents, chosen_N)
    )
    counting = [
        Task(
            f"words-{part.shard:05d}-{part.start}",
            partial(_count_slice, documents, part, chosen_S, lsa.FEATURES),
            len(part),
        )
        for part, chosen_S in sampled
    ]
    counted = [output / COUNTS for output in run_tasks("words", counting, folder, execute)]
    fit = Task("directions", partial(_fit, counted, seed, execute.workers))
    (fitted,) = run_tasks("encoder", [fit], folder, execute)
    known = counted if chosen_N.all() else [None] * len(every)
    return [
        Task(f"lsa-{i:05d}", partial(_lsa_slice, documents, fitted / FITTED, counts, part), len(part))
        for i, (part, counts) in enumerate(zip(every, known, strict=True))
    ]


def _count_slice(
    documents: Artifact,
    part: Slice,
    chosen_S: NDArray[np.bool_] | None,
    features: int,
    folder: Path,
    advance: Advance,
) -> dict[str, Any]:
    """Count the words of a slice's documents, or only of the chosen ones (at least one)."""
    texts = (document.text[:TEXT_CHARACTERS] for document in slice_documents(documents, part, chosen_S))
    scipy.sparse.save_npz(folder / COUNTS, count_words(texts, features), compressed=False)
    advance(len(part))
    return {}


def _fit(counted: Sequence[Path], seed: int, workers: int, folder: Path, advance: Advance) -> dict[str, Any]:
    """Fit `lsa` on counted words."""
    counts_NF = scipy.sparse.vstack([scipy.sparse.load_npz(path) for path in counted], "csr")
    fit_lsa(counts_NF, seed, min(workers, os.cpu_count() or 1)).save(folder / FITTED)
    return {}


def _lsa_slice(
    documents: Artifact, fitted: Path, counted: Path | None, part: Slice, folder: Path, advance: Advance
) -> dict[str, Any]:
    """Write the vectors of a slice's documents by a fitted `lsa`, from the file `counted` if there is one."""
    encoder = _load_lsa(fitted)
    if counted is not None:
        return _write_vectors([encoder.encode_counts(scipy.sparse.load_npz(counted))], folder, advance)
    return _write_vectors(map(encoder, _texts(documents, part)), folder, advance)


def _trained_slice(
    documents: Artifact, name: str, pooling: Pooling, part: Slice, folder: Path, advance: Advance
) -> dict[str, Any]:
    """Write the vectors of a slice's documents by a trained encoder."""
    return _write_vectors(map(_load_trained(name, pooling), _texts(documents, part)), folder, advance)


def _texts(documents: Artifact, part: Slice) -> Iterator[list[str]]:
    """The beginnings of a slice's documents, which are embedded, in batches."""
    texts = (document.text[:TEXT_CHARACTERS] for document in slice_documents(documents, part))
    while batch := list(islice(texts, TEXTS_AT_ONCE)):
        yield batch


def _write_vectors(batches: Iterable[NDArray[np.float32]], folder: Path, advance: Advance) -> dict[str, Any]:
    """Write the unit vectors of batches, and their sum."""
    vectors: list[NDArray[np.float16]] = []
    sums: list[NDArray[np.float64]] = []
    for vectors_BD in batches:
        unit_BD = normalize_rows(vectors_BD)
        vectors.append(unit_BD.astype(np.float16))
        sums.append(unit_BD.sum(0, dtype=np.float64))
        advance(len(unit_BD))
    np.save(folder / VECTORS, np.concatenate(vectors))
    np.save(folder / SUM, np.sum(sums, 0))
    return {"documents": sum(map(len, vectors))}


def _join_vectors(folders: Sequence[Path], count: int, target: Path) -> int:
    """Concatenate the vectors of tasks, zeros replaced by the mean direction; returns D."""
    sum_D = np.sum([np.load(folder / SUM) for folder in folders], 0)
    if not sum_D.any():
        sum_D[0] = 1
    vectors_ND = new_array(target, np.float16, (count, len(sum_D)))
    first = 0
    for folder in folders:
        vectors_BD = np.load(folder / VECTORS)
        vectors_BD[~vectors_BD.any(1)] = normalize_rows(sum_D[None])[0]
        vectors_ND[first : first + len(vectors_BD)] = vectors_BD
        first += len(vectors_BD)
    vectors_ND.flush()
    return len(sum_D)


@lru_cache(maxsize=1)
def _load_lsa(fitted: Path) -> LsaEncoder:
    return LsaEncoder.load(fitted)


@lru_cache(maxsize=1)
def _load_trained(name: str, pooling: Pooling) -> "Encoder":
    from loriini.data.prepare.similarity.encoders import load_encoder  # imports torch

    return load_encoder(name, pooling)
