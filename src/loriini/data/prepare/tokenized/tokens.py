"""The `tokens` stage: every document as token ids, with offsets.

Axes: N documents, each ended by EOS.
"""

import os
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loriini.common.grouping import group_by_size
from loriini.common.progress import Advance, warn
from loriini.data.jobs.artifact import Artifact, build_artifact
from loriini.data.jobs.processes import environment_variables
from loriini.data.jobs.tasks import SERIAL, Executor, Task, concatenate_files, run_tasks, task_counts
from loriini.data.prepare.text.stored import Slice, slice_documents, slices
from loriini.data.prepare.tokenized.cached_tokenizer import CachedTokenizer
from loriini.data.prepare.tokenized.tokenizer import ONE_THREAD

BATCH_CHARACTERS = 1 << 20
TOKEN_FILE = "tokens.bin"
PER_DOCUMENT = ("lengths.npy", "domains.npy", "bytes.npy")
"""Arrays with a value per document that a task writes; the stage stores offsets instead of lengths."""


@dataclass(frozen=True)
class Tokens:
    """A `tokens` artifact, memory-mapped."""

    tokens: NDArray[Any]
    """uint16 or uint32 (offsets[N],)."""
    offsets: NDArray[np.int64]
    """Where each document begins, and the end of the last, (N + 1,)."""
    domains: NDArray[np.uint16]
    """(N,), indices into `domain_names`."""
    bytes: NDArray[np.int64]
    """UTF-8 bytes of each document, (N,)."""
    domain_names: tuple[str, ...]
    eos_token_id: int

    def __len__(self) -> int:
        return len(self.domains)

    def document(self, i: int) -> NDArray[Any]:
        """Document `i`'s tokens, EOS included: a view into the mapped file."""
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]


def write_tokens(
    folder: Path, documents: Artifact, tokenizer: Artifact, execute: Executor = SERIAL
) -> Artifact:
    """Build the `tokens` artifact: every document encoded without special tokens, then EOS.

    A task encodes a slice of documents. Text that spells a special token is encoded as text.
    """
    inputs = {"documents": documents.digest, "tokenizer": tokenizer.digest}
    return build_artifact(folder, {}, inputs, partial(_write, documents, tokenizer, execute))


def open_tokens(stored: Artifact) -> Tokens:
    """Map a `tokens` artifact into memory, read-only. ValueError if its sizes differ from its counts."""
    offsets, domains, sizes = (stored.array(f"{name}.npy") for name in ("offsets", "domains", "bytes"))
    count = stored.counts["documents"]
    if (len(offsets), len(domains), len(sizes)) != (count + 1, count, count):
        raise ValueError(f"{stored.folder}: its arrays differ in length")
    return Tokens(
        tokens=map_ids(stored.path(TOKEN_FILE), stored.counts, int(offsets[-1])),
        offsets=offsets,
        domains=domains,
        bytes=sizes,
        domain_names=tuple(stored.counts["domains"]),
        eos_token_id=stored.counts["eos_token_id"],
    )


def map_ids(path: Path, counts: Mapping[str, Any], length: int) -> NDArray[np.unsignedinteger]:
    """Map a file of `length` ids (length,), read-only.

    Raises ValueError for a file of another size, and for `counts` with an invalid type or EOS.
    """
    if counts["dtype"] not in ("uint16", "uint32") or not 0 <= counts["eos_token_id"] < counts["vocab_size"]:
        raise ValueError(f"{path.parent}: ids of {counts['dtype']} with EOS {counts['eos_token_id']}")
    ids = np.memmap(path, counts["dtype"], mode="r")
    if len(ids) != length:
        raise ValueError(f"{path}: {len(ids)} ids instead of {length}")
    return ids


def write_document_arrays(folder: Path, lengths: ArrayLike, domains: ArrayLike, sizes: ArrayLike) -> None:
    """Write the arrays next to `tokens.bin`: each document's offset, domain and bytes."""
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    np.save(folder / "offsets.npy", offsets)
    np.save(folder / "domains.npy", np.asarray(domains, np.uint16))
    np.save(folder / "bytes.npy", np.asarray(sizes, np.int64))


def id_dtype(tokenizer: Artifact) -> np.dtype[Any]:
    """The smallest type that holds a tokenizer's ids."""
    return np.dtype("<u2" if tokenizer.counts["vocab_size"] <= 1 << 16 else "<u4")


def _write(documents: Artifact, tokenizer: Artifact, execute: Executor, folder: Path) -> dict[str, Any]:
    names = sorted(documents.counts["domains"])
    tasks = [
        Task(f"tokens-{i:05d}", partial(_tokenize_slice, documents, part, tokenizer, names), len(part))
        for i, part in enumerate(slices(documents))
    ]
    done = run_tasks("tokens", tasks, folder, execute)
    tally = sum((Counter(task_counts(output)) for output in done), Counter[str]())
    concatenate_files((output / TOKEN_FILE for output in done), folder / TOKEN_FILE)
    lengths, domains, sizes = (
        np.concatenate([np.load(output / name) for output in done]) for name in PER_DOCUMENT
    )
    write_document_arrays(folder, lengths, domains, sizes)
    text_tokens = tally["tokens"] - tally["documents"]  # without EOS
    if unknown := tally["unknown"]:
        warn(
            f"{unknown:,} of {text_tokens:,} tokens ({100 * unknown / text_tokens:.3g} %) are unknown: the "
            "tokenizer cannot spell all of this text; use another, for example bpe:8192"
        )
    return {
        "documents_in": documents.counts["documents"],
        "documents": tally["documents"],
        "characters_in": tally["characters"],
        "tokens": tally["tokens"],
        "unknown": tally["unknown"],
        "dtype": id_dtype(tokenizer).name,
        "domains": names,
        **tokenizer.counts,
    }


def _tokenize_slice(
    documents: Artifact, part: Slice, tokenizer: Artifact, names: list[str], folder: Path, advance: Advance
) -> dict[str, int]:
    """Write a slice's tokens, and each document's length in tokens, domain and size in bytes."""
    index = {name: i for i, name in enumerate(names)}
    dtype = id_dtype(tokenizer)
    encode = _open_tokenizer(tokenizer.path("tokenizer.json"), tokenizer.digest, dtype)
    eos = np.array(tokenizer.counts["eos_token_id"], dtype).tobytes()
    # A worker's environment gives the library a pool of one thread, which is faster than none.
    threads = {} if "RAYON_NUM_THREADS" in os.environ else ONE_THREAD
    lengths, domains, sizes = array("q"), array("H"), array("q")
    characters = unknown = 0
    with open(folder / TOKEN_FILE, "wb") as file, environment_variables(threads):
        stream = slice_documents(documents, part)
        for batch in group_by_size(stream, lambda document: len(document.text), BATCH_CHARACTERS):
            texts = [document.text for document in batch]
            for ids in encode(texts):
                lengths.append(file.write(ids + eos) // dtype.itemsize)
                if encode.unknown_id is not None:
                    unknown += int(np.count_nonzero(np.frombuffer(ids, dtype) == encode.unknown_id))
            domains.extend(index[document.domain] for document in batch)
            sizes.extend(len(text.encode()) for text in texts)
            characters += sum(map(len, texts))
            advance(len(batch))
    for name, values in zip(PER_DOCUMENT, (lengths, domains, sizes), strict=True):
        np.save(folder / name, np.asarray(values))
    return {"documents": len(lengths), "characters": characters, "tokens": sum(lengths), "unknown": unknown}


@lru_cache(maxsize=1)
def _open_tokenizer(path: Path, digest: str, dtype: np.dtype[Any]) -> CachedTokenizer:
    """Open a tokenizer once per process; `digest` distinguishes it from a later one at the same path."""
    return CachedTokenizer(path, dtype)
