"""The `instances` stage: ordered documents concatenated and cut into instances of `length + 1` tokens.

Instances do not overlap; the last token of one is only ever a target. The tail, shorter than an instance, is
left out and counted.

Axes: N documents, M ordered documents, I instances, P pieces (the parts of documents that instances hold),
L = length + 1 tokens.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.corpus.array_types import Ids
from loriini.corpus.tokens import TOKEN_FILE, map_ids, open_tokens
from loriini.errors import InputError
from loriini.jobs.artifact import Artifact, build_artifact, link_or_copy, load_artifact, parts_folder
from loriini.jobs.tasks import SERIAL, Executor, Task, concatenate_files, run_tasks
from loriini.progress import Advance

INSTANCE_FILE, MAJORITY_FILE = "instances.bin", "domains.npy"
PIECES = ("piece_starts.npy", "piece_documents.npy", "piece_lengths.npy")
BEGINS = "piece_begins.npy"
TOKENS_PER_TASK = 1 << 24


@dataclass(frozen=True)
class Pieces:
    """Which documents each instance holds, in reading order.

    Instance i holds the pieces starts_I[i] … starts_I[i+1]-1; piece p is `lengths_P[p]` tokens of document
    `documents_P[p]`. An instance holds at most one piece of a document.
    """

    starts_I: Ids
    """(I + 1,), one more than instances."""
    documents_P: Ids
    lengths_P: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts_I) - 1

    @property
    def instances_P(self) -> Ids:
        """The instance of each piece, (P,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts_I))

    def positions(self, instance: int) -> NDArray[np.int64]:
        """Each token's position in its piece of an instance, int64 (L,)."""
        lengths = self.lengths_P[self.starts_I[instance] : self.starts_I[instance + 1]].astype(np.int64)
        return np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)


@dataclass(frozen=True)
class Instances:
    """Finished instances, mapped from disk; a pickle holds the folder, from which they are mapped again."""

    folder: Path
    tokens_IL: NDArray[np.unsignedinteger]
    pieces: Pieces
    domains_I: NDArray[np.uint16]
    """The domain of most of an instance's tokens, an index into `domain_names`."""
    domain_names: tuple[str, ...]
    vocab_size: int
    eos_token_id: int

    def __reduce__(self) -> tuple[Callable[[Path], "Instances"], tuple[Path]]:
        return _reopen, (Path(os.path.abspath(self.folder)),)  # numpy would copy what is mapped

    def __len__(self) -> int:
        return len(self.tokens_IL)

    @property
    def length(self) -> int:
        """Tokens that are predicted in an instance: one fewer than it holds."""
        return self.tokens_IL.shape[1] - 1

    def read(self, ids_B: Ids | slice) -> NDArray[np.int64]:
        """The tokens of some instances, copied to memory, int64 (B, length + 1).

        Raises InputError for one that is not in the vocabulary.
        """
        tokens_BL = self.tokens_IL[ids_B].astype(np.int64)
        largest = int(tokens_BL.max(initial=0))
        if largest >= self.vocab_size:
            raise InputError(
                f"{self.folder / INSTANCE_FILE}: holds the id {largest} of {self.vocab_size}; "
                "the corpus is damaged, check it with `loriini inspect --verify`"
            )
        return tokens_BL

    def positions(self, ids_B: Ids) -> NDArray[np.int64]:
        """Each token's position in its piece of a document, int64 (B, length + 1)."""
        return np.stack([self.pieces.positions(i) for i in ids_B])

    def labels(self, ids_B: Ids) -> NDArray[np.int64]:
        """The majority domain of some instances, int64 (B,), indices into `label_names`."""
        return self.domains_I[ids_B].astype(np.int64)

    @property
    def label_names(self) -> tuple[str, ...]:
        return self.domain_names


def write_instances(
    folder: Path, tokens: Artifact, order: Artifact, length: int, execute: Executor = SERIAL
) -> Artifact:
    """Write the ordered documents as instances of `length` + 1 tokens.

    Files: `instances.bin` raw (I, length + 1) of the tokens' type, `piece_starts.npy` int64 (I + 1,),
    `piece_documents.npy` int64 (P,), `piece_lengths.npy` int32 (P,), `domains.npy` uint16 (I,). Counts:
    instances, documents and tokens in, tokens left out at the end, and what a reader needs.

    Raises:
        InputError: `length` is not positive, or the corpus is shorter than one instance.
        ValueError: a document is in the order twice (our fault, or damage).
    """
    if length < 1:
        raise InputError(f"length {length} is not positive; choose for example 1024")
    inputs = {"tokens": tokens.digest, "order": order.digest}
    return build_artifact(folder, {"length": length}, inputs, partial(_write, tokens, order, length, execute))


def check_enough(tokens: Artifact, count: int, length: int) -> None:
    """InputError when `count` tokens do not fill one instance."""
    if count <= length:
        raise InputError(
            f"{tokens.folder}: {count} tokens are too few for one instance of {length} + 1; "
            "use a shorter --length or more documents"
        )


def open_instances(artifact: Artifact) -> Instances:
    """Map the arrays of an `instances` artifact, unread. ValueError for other sizes than counted."""
    counts = artifact.counts
    count, width = counts["instances"], artifact.settings["length"] + 1
    tokens = map_ids(artifact.path(INSTANCE_FILE), counts, count * width)
    pieces = Pieces(*(np.load(artifact.path(name), mmap_mode="r") for name in PIECES))
    domains_I = np.load(artifact.path(MAJORITY_FILE), mmap_mode="r")
    sizes = (len(pieces), len(domains_I), len(pieces.documents_P), int(pieces.starts_I[-1]))
    if sizes != (count, count, len(pieces.lengths_P), len(pieces.lengths_P)):
        raise ValueError(f"{artifact.folder}: its arrays are not of one length")
    names, vocab_size, eos_token_id = (counts[key] for key in ("domains", "vocab_size", "eos_token_id"))
    tokens_IL = tokens.reshape(count, width)
    return Instances(artifact.folder, tokens_IL, pieces, domains_I, tuple(names), vocab_size, eos_token_id)


def _reopen(folder: Path) -> Instances:
    """The instances that a pickle names."""
    return open_instances(load_artifact(folder))


def cut_instances(offsets: Ids, order_M: Ids, size: int) -> Pieces:
    """Cut the documents, concatenated in the given order, into instances of `size` tokens.

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
    """The domain of most of each instance's tokens, uint16 (I,); in a tie the first."""
    domains_P = domains_N[pieces.documents_P].astype(np.int64)
    width = int(domains_N.max()) + 1
    pairs, pair_P = np.unique(pieces.instances_P * width + domains_P, return_inverse=True)
    tokens = np.bincount(pair_P, weights=pieces.lengths_P)
    instances, domains = np.divmod(pairs, width)
    best_first = np.lexsort((domains, -tokens, instances))
    first_of_each = np.unique(instances[best_first], return_index=True)[1]
    return domains[best_first[first_of_each]].astype(np.uint16)


def _write(tokens: Artifact, order: Artifact, length: int, execute: Executor, folder: Path) -> dict[str, Any]:
    parts, size = parts_folder(folder), length + 1
    (planned,) = run_tasks("cut", [Task("plan", partial(_plan, tokens, order, size))], folder, execute)
    count, total = planned["instances"], planned["tokens_in"]
    check_enough(tokens, total, length)
    bounds = pairwise([*range(0, count, max(1, TOKENS_PER_TASK // size)), count])
    tasks = [
        Task(f"fill-{i:05d}", partial(_fill, tokens, parts / "plan", first, last), (last - first) * size)
        for i, (first, last) in enumerate(bounds)
    ]
    written = sum(counts["tokens"] for counts in run_tasks("instances", tasks, folder, execute))
    for name in PIECES:
        link_or_copy(parts / "plan" / name, folder / name)
    concatenate_files((parts / task.name / INSTANCE_FILE for task in tasks), folder / INSTANCE_FILE)
    domains = [np.load(parts / task.name / MAJORITY_FILE) for task in tasks]
    np.save(folder / MAJORITY_FILE, np.concatenate(domains))
    return {
        **planned,
        "tokens": written,
        "tokens_left_out": total - count * size,
        **{key: tokens.counts[key] for key in ("dtype", "vocab_size", "eos_token_id", "domains")},
    }


def _plan(tokens: Artifact, order: Artifact, size: int, folder: Path, advance: Advance) -> dict[str, int]:
    """Write what every instance holds, and where in `tokens` each of its pieces begins.

    Memory: about 80 bytes per document.
    """
    offsets = open_tokens(tokens).offsets
    order_M = np.load(order.path("order.npy"))
    distinct = len(np.unique(order_M))
    if distinct != len(order_M):
        raise ValueError(f"the order holds {len(order_M)} documents, {distinct} of them distinct")
    pieces = cut_instances(offsets, order_M, size)
    for name, array in zip(PIECES, (pieces.starts_I, pieces.documents_P, pieces.lengths_P), strict=True):
        np.save(folder / name, np.asarray(array))
    np.save(folder / BEGINS, _begins(pieces, offsets))
    return {
        "instances": len(pieces),
        "documents_in": len(order_M),
        "documents": int(_starts_document(pieces).sum()),
        "tokens_in": int((offsets[order_M + 1] - offsets[order_M]).sum()),
    }


def _fill(
    tokens: Artifact, plan: Path, first: int, last: int, folder: Path, advance: Advance
) -> dict[str, int]:
    """Write the tokens and majority domains of the instances `first` … `last` - 1."""
    source = open_tokens(tokens)
    starts, *arrays = (np.load(plan / name, mmap_mode="r") for name in (*PIECES, BEGINS))
    starts_I = starts[first : last + 1]
    documents_P, lengths_P, begins_P = (array[starts_I[0] : starts_I[-1]] for array in arrays)
    filled = _read_pieces(tokens.path(TOKEN_FILE), source.tokens.dtype, begins_P, lengths_P)
    filled.tofile(folder / INSTANCE_FILE)
    pieces = Pieces(starts_I - starts_I[0], documents_P, lengths_P)
    np.save(folder / MAJORITY_FILE, majority_domains(pieces, source.domains))
    advance(len(filled))
    return {"tokens": len(filled)}


def _read_pieces(
    path: Path, dtype: np.dtype[Any], begins_P: Ids, lengths_P: NDArray[np.integer]
) -> NDArray[Any]:
    """Read pieces of a file of tokens, end to end; not mapped, since mapped pages count as memory held."""
    read = np.empty(lengths_P.sum(), dtype)
    buffer, place = read.data.cast("B"), 0
    with open(path, "rb", buffering=0) as file:
        for begin, size in (np.stack([begins_P, lengths_P], 1) * dtype.itemsize).tolist():
            file.seek(begin)
            if file.readinto(buffer[place : place + size]) != size:
                raise EOFError(f"{path}: shorter than {begin + size} bytes")
            place += size
    return read


def _starts_document(pieces: Pieces) -> NDArray[np.bool_]:
    """Whether each piece is the first of its document, (P,); a document's pieces follow each other."""
    documents_P = pieces.documents_P
    return np.append(True, documents_P[1:] != documents_P[:-1])[: len(documents_P)]


def _begins(pieces: Pieces, offsets: Ids) -> Ids:
    """Where each piece begins among all tokens as they are stored, (P,)."""
    places_P = np.cumsum(pieces.lengths_P, dtype=np.int64) - pieces.lengths_P
    first_P = np.flatnonzero(_starts_document(pieces))
    runs = np.diff(np.append(first_P, len(places_P)))
    return offsets[pieces.documents_P] + places_P - np.repeat(places_P[first_P], runs)
