"""The `instances` stage: ordered documents concatenated and cut into instances of `length + 1` tokens.

Instances do not overlap; the last token of each is only ever a target. The tail, shorter than an instance, is
left out and counted.

Axes: N documents, M ordered documents, I instances, P pieces (the parts of documents that instances hold),
L = length + 1 tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.common.errors import InputError
from loriini.common.progress import Advance
from loriini.data.jobs.artifact import Artifact, build_artifact, load_artifact, new_array
from loriini.data.jobs.tasks import SERIAL, Executor, Task, concatenate_files, run_tasks, task_counts
from loriini.data.prepare.arrays import ORDER, Ids
from loriini.data.prepare.tokenized.pieces import Cut, Pieces, cut_instances, majority_domains
from loriini.data.prepare.tokenized.tokens import TOKEN_FILE, Tokens, map_ids, open_tokens

INSTANCE_FILE, MAJORITY_FILE = "instances.bin", "domains.npy"
PIECES = ("piece_starts.npy", "piece_documents.npy", "piece_lengths.npy")
ENDS = "ends.npy"
TOKENS_PER_TASK = 1 << 24


@dataclass(frozen=True)
class Instances:
    """Finished instances, mapped from disk; a pickle holds the artifact, from which they are mapped again."""

    folder: Path
    tokens_IL: NDArray[np.unsignedinteger]
    pieces: Pieces
    domains_I: NDArray[np.uint16]
    """The domain of most of an instance's tokens, an index into `label_names`."""
    label_names: tuple[str, ...]
    vocab_size: int
    eos_token_id: int

    def __reduce__(self) -> tuple[Callable[[Artifact], "Instances"], tuple[Artifact]]:
        return open_instances, (load_artifact(self.folder.absolute()),)  # numpy would copy what is mapped

    def __len__(self) -> int:
        return len(self.tokens_IL)

    @property
    def length(self) -> int:
        """Tokens that are predicted in an instance: one fewer than it holds."""
        return self.tokens_IL.shape[1] - 1

    def read(self, ids_B: Ids | slice) -> NDArray[np.int64]:
        """The tokens of some instances, copied to memory, int64 (B, length + 1).

        Raises InputError for a token outside the vocabulary.
        """
        tokens_BL = self.tokens_IL[ids_B].astype(np.int64)
        largest = int(tokens_BL.max(initial=0))
        if largest >= self.vocab_size:
            raise InputError(
                f"{self.folder / INSTANCE_FILE}: holds the id {largest}, but the vocabulary has "
                f"{self.vocab_size}; the corpus is damaged, check it with `loriini inspect --verify`"
            )
        return tokens_BL

    def positions(self, ids_B: Ids) -> NDArray[np.int64]:
        """Each token's position in its piece of a document, int64 (B, length + 1)."""
        return np.stack([self.pieces.positions(i) for i in ids_B])

    def labels(self, ids_B: Ids) -> NDArray[np.int64]:
        """The majority domain of some instances, int64 (B,), indices into `label_names`."""
        return self.domains_I[ids_B].astype(np.int64)


def write_instances(
    folder: Path, tokens: Artifact, order: Artifact, length: int, execute: Executor = SERIAL
) -> Artifact:
    """Write the ordered documents as instances of `length` + 1 tokens, at least 2.

    Files: `instances.bin` raw (I, length + 1) of the tokens' type, `piece_starts.npy` int64 (I + 1,),
    `piece_documents.npy` int64 (P,), `piece_lengths.npy` int32 (P,), `domains.npy` uint16 (I,). Counts:
    instances, documents and tokens in, tokens left out at the end, and what a reader needs.

    Raises:
        InputError: the corpus is shorter than one instance.
    """
    inputs = {"tokens": tokens.digest, "order": order.digest}
    return build_artifact(folder, {"length": length}, inputs, partial(_write, tokens, order, length, execute))


def check_enough(tokens: Artifact, count: int, length: int) -> None:
    """InputError when `count` tokens do not fill one instance."""
    if count <= length:
        raise InputError(
            f"{tokens.folder.parent}: {count} tokens to train on are too few for one instance of "
            f"{length} + 1; use a shorter --length, more documents or a smaller --heldout-share"
        )


def open_instances(artifact: Artifact) -> Instances:
    """Map the arrays of an `instances` artifact, unread. ValueError if their sizes differ from its counts."""
    counts = artifact.counts
    count, width = counts["instances"], artifact.settings["length"] + 1
    tokens = map_ids(artifact.path(INSTANCE_FILE), counts, count * width)
    pieces = Pieces(*map(artifact.array, PIECES))
    domains_I = artifact.array(MAJORITY_FILE)
    sizes = (len(pieces), len(domains_I), len(pieces.documents_P), int(pieces.starts_I[-1]))
    if sizes != (count, count, len(pieces.lengths_P), len(pieces.lengths_P)):
        raise ValueError(f"{artifact.folder}: its arrays differ in length")
    names, vocab_size, eos_token_id = (counts[key] for key in ("domains", "vocab_size", "eos_token_id"))
    tokens_IL = tokens.reshape(count, width)
    return Instances(artifact.folder, tokens_IL, pieces, domains_I, tuple(names), vocab_size, eos_token_id)


def _write(tokens: Artifact, order: Artifact, length: int, execute: Executor, folder: Path) -> dict[str, Any]:
    size = length + 1
    (plan,) = run_tasks("cut", [Task("ends", partial(_write_ends, tokens, order, size))], folder, execute)
    planned, ends = task_counts(plan), plan / ENDS
    count, total = planned["instances"], planned["tokens_in"]
    check_enough(tokens, total, length)
    bounds = pairwise([*range(0, count, max(1, TOKENS_PER_TASK // size)), count])
    tasks = [
        Task(f"cut-{i:05d}", partial(_cut, tokens, order, ends, size, first, last), last - first)
        for i, (first, last) in enumerate(bounds)
    ]
    done = run_tasks("instances", tasks, folder, execute)
    counted = list(map(task_counts, done))
    _join(done, count, sum(counts["pieces"] for counts in counted), folder)
    return {
        **planned,
        "tokens": sum(counts["tokens"] for counts in counted),
        "tokens_left_out": total - count * size,
        **{key: tokens.counts[key] for key in ("dtype", "vocab_size", "eos_token_id", "domains")},
    }


def _write_ends(
    tokens: Artifact, order: Artifact, size: int, folder: Path, advance: Advance
) -> dict[str, int]:
    """Write where each document ends, in tokens from the start of the order; returns counts.

    Memory: at most 24 bytes per document.
    """
    order_M = order.array(ORDER)
    cut = cut_instances(open_tokens(tokens).offsets, order_M, size)
    np.save(folder / ENDS, cut.ends_M)
    begins_M = np.append(0, cut.ends_M)[:-1]
    in_instances_M = (begins_M < cut.ends_M) & (begins_M < len(cut) * size)
    return {
        "instances": len(cut),
        "documents_in": len(order_M),
        "documents": int(in_instances_M.sum()),
        "tokens_in": int(cut.ends_M[-1]) if len(order_M) else 0,
    }


def _cut(
    tokens: Artifact,
    order: Artifact,
    ends: Path,
    size: int,
    first: int,
    last: int,
    folder: Path,
    advance: Advance,
) -> dict[str, int]:
    """Write the tokens, pieces and majority domains of the instances `first` … `last` - 1."""
    source = open_tokens(tokens)
    cut = Cut(order.array(ORDER), np.load(ends, mmap_mode="r"), size)
    filled = _read_documents(tokens.path(TOKEN_FILE), source, cut, first * size, last * size)
    filled.tofile(folder / INSTANCE_FILE)
    pieces = cut.block(first, last)
    for name, array in zip(PIECES, (pieces.starts_I, pieces.documents_P, pieces.lengths_P), strict=True):
        np.save(folder / name, np.asarray(array))
    np.save(folder / MAJORITY_FILE, majority_domains(pieces, source.domains))
    advance(last - first)
    return {"tokens": len(filled), "pieces": len(pieces.lengths_P)}


def _read_documents(path: Path, source: Tokens, cut: Cut, first: int, last: int) -> NDArray[Any]:
    """Read the tokens `first` … `last` - 1 of the concatenated documents from the file of all tokens.

    The file is not mapped, since mapped pages count as memory held.
    """
    begin, end = np.searchsorted(cut.ends_M, [first, last - 1], side="right")
    documents_D = cut.order_M[begin : end + 1]
    begins_D, ends_D = source.offsets[documents_D], source.offsets[documents_D + 1]
    begins_D[0] = ends_D[0] - (cut.ends_M[begin] - first)
    ends_D[-1] -= cut.ends_M[end] - last
    dtype = source.tokens.dtype
    read = np.empty(last - first, dtype)
    buffer, place = read.data.cast("B"), 0
    with open(path, "rb", buffering=0) as file:
        for here, size in (np.stack([begins_D, ends_D - begins_D], 1) * dtype.itemsize).tolist():
            file.seek(here)
            if file.readinto(buffer[place : place + size]) != size:
                raise EOFError(f"{path}: shorter than {here + size} bytes")
            place += size
    return read


def _join(folders: Sequence[Path], instances: int, pieces: int, folder: Path) -> None:
    """Write the tasks' files one after another, with their pieces numbered in sequence."""
    concatenate_files((each / INSTANCE_FILE for each in folders), folder / INSTANCE_FILE)
    counts = (instances + 1, pieces, pieces, instances)
    names = (*PIECES, MAJORITY_FILE)
    starts_I, documents_P, lengths_P, domains_I = (
        new_array(folder / name, dtype, (count,))
        for name, dtype, count in zip(names, (np.int64, np.int64, np.int32, np.uint16), counts, strict=True)
    )
    instance = piece = 0
    for each in folders:
        starts, documents, lengths, domains = (np.load(each / name) for name in names)
        # a task's last start is where the next one's first instance begins
        starts_I[instance : instance + len(starts)] = piece + starts
        documents_P[piece : piece + len(documents)] = documents
        lengths_P[piece : piece + len(lengths)] = lengths
        domains_I[instance : instance + len(domains)] = domains
        instance += len(domains)
        piece += len(lengths)
