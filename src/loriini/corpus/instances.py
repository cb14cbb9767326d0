"""tokens + order → instances of `length + 1` tokens each: concatenate the documents and cut.

Instances do not overlap; the last token of one is only ever a target. What is left at the end, shorter than
an instance, is left out and counted. Which documents an instance holds is written beside it.

Axes: N documents, M ordered documents, I instances, P pieces (the parts of documents that instances hold),
L = length + 1 tokens, D embedding width.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.corpus.tokens import TOKENS as STORED
from loriini.corpus.tokens import open_tokens
from loriini.errors import InputError
from loriini.jobs.artifact import Artifact, build_artifact, parts_folder
from loriini.jobs.tasks import SERIAL, Executor, Task, concatenate_files, link_or_copy, run_tasks
from loriini.progress import Advance

TOKENS, DOMAINS = "instances.bin", "domains.npy"
PIECES = ("piece_starts.npy", "piece_documents.npy", "piece_lengths.npy")
BEGINS = "piece_begins.npy"
TOKENS_AT_ONCE = 1 << 24
"""Of a task."""


@dataclass(frozen=True)
class Pieces:
    """Which documents each instance holds, in reading order.

    Instance i holds the pieces starts_I[i] … starts_I[i+1]-1; piece p is `lengths_P[p]` tokens of document
    `documents_P[p]`. An instance holds at most one piece of a document.
    """

    starts_I: NDArray[np.int64]
    """(I + 1,), one more than instances."""
    documents_P: NDArray[np.int64]
    lengths_P: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts_I) - 1

    @property
    def instances_P(self) -> NDArray[np.int64]:
        """The instance each piece belongs to, (P,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts_I))


@dataclass(frozen=True)
class Instances:
    """Finished instances, mapped from disk."""

    tokens_IL: NDArray[np.unsignedinteger]
    pieces: Pieces
    domains_I: NDArray[np.uint16]
    """The domain most of an instance's tokens come from, an index into `domain_names`."""
    domain_names: tuple[str, ...]
    vocab_size: int
    eos_token_id: int

    def __len__(self) -> int:
        return len(self.tokens_IL)

    @property
    def length(self) -> int:
        """Tokens that are predicted in an instance: one fewer than it holds."""
        return self.tokens_IL.shape[1] - 1

    def read(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens of some instances, copied to memory, int64 (B, length + 1)."""
        return self.tokens_IL[ids_B].astype(np.int64)

    def labels(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        """The majority domain of some instances, int64 (B,), indices into `label_names`."""
        return self.domains_I[ids_B].astype(np.int64)

    @property
    def label_names(self) -> tuple[str, ...]:
        """The domains."""
        return self.domain_names


def write_instances(
    folder: Path, tokens: Artifact, order: Artifact, length: int, execute: Executor = SERIAL
) -> Artifact:
    """Write the ordered documents as instances of `length` + 1 tokens, a task some millions of tokens.

    Files: `instances.bin` raw (I, length + 1) of the tokens' type, `piece_starts.npy` int64 (I + 1,),
    `piece_documents.npy` int64 (P,), `piece_lengths.npy` int32 (P,), `domains.npy` uint16 (I,). Counts:
    instances, documents and tokens in, tokens left out at the end, and what a reader needs.

    Raises:
        InputError: `length` is not positive, or the corpus is shorter than one instance.
        RuntimeError: a document or token went missing or came twice (our fault).
    """
    if length < 1:
        raise InputError(f"length {length} is not positive; choose for example 1024")

    size = length + 1

    def write(temporary: Path) -> dict[str, Any]:
        parts = parts_folder(temporary)
        (planned,) = run_tasks("cut", [Task("plan", partial(_plan, tokens, order, size))], temporary, execute)
        count, total = planned["instances"], planned["tokens_in"]
        check_enough(tokens, total, length)
        bounds = pairwise([*range(0, count, max(1, TOKENS_AT_ONCE // size)), count])
        tasks = [
            Task(f"fill-{i:05d}", partial(_fill, tokens, parts / "plan", first, last), (last - first) * size)
            for i, (first, last) in enumerate(bounds)
        ]
        filled = run_tasks("instances", tasks, temporary, execute)
        written = sum(counts["tokens"] for counts in filled)
        if written != count * size:
            raise RuntimeError(f"{written} tokens were written of {count * size}")
        for name in PIECES:
            link_or_copy(parts / "plan" / name, temporary / name)
        concatenate_files((parts / task.name / TOKENS for task in tasks), temporary / TOKENS)
        domains = [np.load(parts / task.name / DOMAINS) for task in tasks]
        np.save(temporary / DOMAINS, np.concatenate(domains))
        return {
            **planned,
            "tokens": written,
            "tokens_left_out": total - written,
            **{key: tokens.counts[key] for key in ("dtype", "vocab_size", "eos_token_id", "domains")},
        }

    return build_artifact(folder, {"length": length}, {"tokens": tokens.digest, "order": order.digest}, write)


def check_enough(tokens: Artifact, count: int, length: int) -> None:
    """InputError when `count` of the tokens do not fill one instance."""
    if count <= length:
        raise InputError(
            f"{tokens.folder}: {count} tokens are too few for one instance of {length} + 1; "
            "use a shorter --length or more documents"
        )


def open_instances(artifact: Artifact) -> Instances:
    """Map the arrays of a finished artefact; nothing is read yet."""
    counts = artifact.counts
    return Instances(
        np.memmap(
            artifact.path(TOKENS),
            dtype=counts["dtype"],
            mode="r",
            shape=(counts["instances"], artifact.settings["length"] + 1),
        ),
        Pieces(*(np.load(artifact.path(name), mmap_mode="r") for name in PIECES)),
        np.load(artifact.path(DOMAINS), mmap_mode="r"),
        tuple(counts["domains"]),
        counts["vocab_size"],
        counts["eos_token_id"],
    )


def cut(offsets: NDArray[np.int64], order_M: NDArray[np.int64], size: int) -> Pieces:
    """What instances of `size` tokens hold when the documents follow each other in the given order.

    Args:
        offsets: where each document begins, and the end of the last, (N + 1,).
        order_M: ids of documents, each at most once.
        size: tokens of an instance, `length` + 1.
    """
    ends_M = np.cumsum(offsets[order_M + 1] - offsets[order_M])
    instances = int(ends_M[-1]) // size if len(ends_M) else 0
    bounds = np.arange(instances + 1) * size
    cuts = np.union1d(bounds, ends_M[ends_M < bounds[-1]])
    starts_P = cuts[:-1]
    return Pieces(
        np.searchsorted(cuts, bounds),
        # "right": a document that ends where the piece starts is not the one it belongs to
        order_M[np.searchsorted(ends_M, starts_P, side="right")],
        np.diff(cuts).astype(np.int32),
    )


def majority_domains(pieces: Pieces, domains_N: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """The domain most of each instance's tokens come from, uint16 (I,); of equals the first."""
    domains_P = domains_N[pieces.documents_P].astype(np.int64)
    width = int(domains_N.max()) + 1
    pairs, pair_P = np.unique(pieces.instances_P * width + domains_P, return_inverse=True)
    tokens = np.bincount(pair_P, weights=pieces.lengths_P)
    instances, domains = np.divmod(pairs, width)
    best_first = np.lexsort((domains, -tokens, instances))
    first_of_each = np.unique(instances[best_first], return_index=True)[1]
    return domains[best_first[first_of_each]].astype(np.uint16)


def shared_instance_cosine(pieces: Pieces, vectors_ND: NDArray[np.floating]) -> float:
    """How alike the documents are that share an instance.

    For each instance with m ≥ 2 documents, the mean cosine over its pairs of distinct documents; then the
    mean over those instances (NaN when there are none). Documents count equally, however many tokens of
    theirs the instance holds. With unit vectors v the sum over ordered pairs is |Σv|² − Σ|v|².
    """
    sizes_I = np.diff(pieces.starts_I)
    total, count = 0.0, 0
    for first in range(0, len(pieces), 4096):
        last = min(first + 4096, len(pieces))
        begin, end = pieces.starts_I[first], pieces.starts_I[last]
        vectors_PD = vectors_ND[pieces.documents_P[begin:end]].astype(np.float32)
        groups = pieces.starts_I[first:last] - begin
        sums_ID = np.add.reduceat(vectors_PD, groups)
        squares_I = np.add.reduceat(np.square(vectors_PD).sum(1), groups)
        sizes = sizes_I[first:last]
        shared = sizes >= 2
        pairs = (np.square(sums_ID).sum(1) - squares_I)[shared] / (sizes * (sizes - 1))[shared]
        total += float(pairs.sum(dtype=np.float64))
        count += len(pairs)
    return total / count if count else float("nan")


def _check_accounts(offsets: NDArray[np.int64], order_M: NDArray[np.int64]) -> int:
    """The tokens of the ordered documents; RuntimeError when a document comes twice."""
    seen_N = np.zeros(len(offsets) - 1, bool)
    seen_N[order_M] = True
    if int(seen_N.sum()) != len(order_M):
        raise RuntimeError(f"the order holds {len(order_M)} documents, {int(seen_N.sum())} of them distinct")
    return int(np.diff(offsets)[seen_N].sum())


def _plan(tokens: Artifact, order: Artifact, size: int, folder: Path, advance: Advance) -> dict[str, int]:
    """Write what every instance holds, and where in `tokens` each of its pieces begins."""
    offsets = open_tokens(tokens).offsets
    order_M = np.load(order.path("order.npy"))
    total = _check_accounts(offsets, order_M)
    pieces = cut(offsets, order_M, size)
    for name, array in zip(PIECES, (pieces.starts_I, pieces.documents_P, pieces.lengths_P), strict=True):
        np.save(folder / name, np.asarray(array))
    np.save(folder / BEGINS, _begins(pieces, offsets))
    return {
        "instances": len(pieces),
        "documents_in": len(order_M),
        "documents": int(_starts_document(pieces).sum()),
        "tokens_in": total,
    }


def _fill(
    tokens: Artifact, plan: Path, first: int, last: int, folder: Path, advance: Advance
) -> dict[str, int]:
    """Write the tokens and the domains of the instances `first` … `last` - 1."""
    source = open_tokens(tokens)
    starts, *arrays = (np.load(plan / name, mmap_mode="r") for name in (*PIECES, BEGINS))
    starts_I = starts[first : last + 1]
    documents_P, lengths_P, begins_P = (array[starts_I[0] : starts_I[-1]] for array in arrays)
    filled = _read_pieces(tokens.path(STORED), source.tokens.dtype, begins_P, lengths_P)
    filled.tofile(folder / TOKENS)
    pieces = Pieces(starts_I - starts_I[0], documents_P, lengths_P)
    np.save(folder / DOMAINS, majority_domains(pieces, source.domains))
    advance(len(filled))
    return {"tokens": len(filled)}


def _read_pieces(
    path: Path, dtype: np.dtype[Any], begins_P: NDArray[np.int64], lengths_P: NDArray[np.integer]
) -> NDArray[Any]:
    """Pieces of a file of tokens, end to end. They are read: pages of a mapped file count as memory held."""
    read = np.empty(lengths_P.sum(), dtype)
    room, place = read.data.cast("B"), 0
    with open(path, "rb", buffering=0) as file:
        for begin, size in (np.stack([begins_P, lengths_P], 1) * dtype.itemsize).tolist():
            file.seek(begin)
            if file.readinto(room[place : place + size]) != size:
                raise RuntimeError(f"{path}: shorter than {begin + size} bytes")
            place += size
    return read


def _starts_document(pieces: Pieces) -> NDArray[np.bool_]:
    """Whether each piece is the first of its document, (P,): a document's pieces follow each other."""
    documents_P = pieces.documents_P
    return np.append(True, documents_P[1:] != documents_P[:-1])[: len(documents_P)]


def _begins(pieces: Pieces, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each piece begins among all tokens as they are stored, (P,)."""
    places_P = np.cumsum(pieces.lengths_P, dtype=np.int64) - pieces.lengths_P
    first_P = np.flatnonzero(_starts_document(pieces))
    runs = np.diff(np.append(first_P, len(places_P)))
    return offsets[pieces.documents_P] + places_P - np.repeat(places_P[first_P], runs)
