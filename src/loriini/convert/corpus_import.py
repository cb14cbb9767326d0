"""Corpora from tokens of other programs: Megatron's indexed data sets and Hugging Face data sets."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from loriini.convert.corpus_export import BLOCK_TOKENS, CorpusFormat
from loriini.convert.megatron import read_megatron
from loriini.corpus.documents import limit_domains
from loriini.corpus.instances import check_enough, write_instances
from loriini.corpus.prepare import Corpus, manifest_of, open_corpus
from loriini.corpus.settings import PrepareSettings
from loriini.corpus.tokenizer import (
    check_tokenizer,
    local_tokenizer,
    open_tokenizer,
    same_vocabulary,
    write_tokenizer,
)
from loriini.corpus.tokens import TOKEN_FILE, id_dtype, write_document_arrays
from loriini.corpus.verify import check_stages
from loriini.errors import InputError
from loriini.jobs.artifact import MANIFEST, Artifact, build_artifact, file_hashes, write_manifest
from loriini.jobs.lock import folder_lock
from loriini.progress import progress, warn
from loriini.snapshot import holds_tokenizer
from loriini.sources.columns import open_columns
from loriini.sources.records import TOO_LONG, BadRecord
from loriini.sources.split import SPLIT

TokenBlock = tuple[NDArray[np.integer], NDArray[np.integer], list[str]]
"""Consecutive documents: their tokens (T,), lengths (N,) and domains."""


def import_corpus(out: Path, source: Path, tokenizer: str, length: int = PrepareSettings.length) -> Corpus:
    """Create the corpus `out` from tokens of another program, in the order in which they are stored.

    Args:
        out: the corpus's folder. Finished stages are not run again.
        source: a Megatron data set's prefix (or its `.bin` or `.idx`), or a Hugging Face data set: a folder
            of parquet files, of which the split `train` is read, or one such file. They have a column
            `input_ids` and optionally `domain` and `piece_lengths`, the tokens of each document in a row.
        tokenizer: the path of the tokenizer that encoded the tokens. It is compared with the folder
            `tokenizer` beside them, if there is one, as `export_corpus` writes it.
        length: tokens predicted in an instance. Exported instances of `length` + 1 tokens are restored.

    Raises:
        InputError: the source is neither, or shorter than an instance, the tokenizer lacks an id, `out` holds
            other files where a stage belongs, or another process works on it.
    """
    if tokenizer.startswith("bpe:"):
        raise InputError(f"{tokenizer}: the tokens exist already; give the path of their tokenizer")
    if length < 1:
        raise InputError(f"length is {length}; it must be at least 1")
    check_stages(out)
    check_tokenizer(tokenizer)
    files = find_token_files(source)
    _check_encoded_by(files.root / "tokenizer", tokenizer)
    out.mkdir(parents=True, exist_ok=True)
    with folder_lock(out):
        stages = _import_stages(out, files, tokenizer, length)
        settings = {"source": str(source), "tokenizer": tokenizer, "length": length, "order": "given"}
        write_manifest(out / MANIFEST, {**manifest_of(settings, stages), "shared_instance_cosine": {}})
    return open_corpus(out)


@dataclass(frozen=True)
class TokenFiles:
    """A data set of tokens: the `.bin` and `.idx` of a Megatron data set, or parquet files."""

    source: Path
    form: CorpusFormat
    files: tuple[Path, ...]

    @property
    def root(self) -> Path:
        """The folder of the data set."""
        return self.source if self.source.is_dir() else self.source.parent

    def hashes(self) -> dict[str, str]:
        """File names, relative to the folder of the data set, to hashes of their bytes."""
        names = (path.relative_to(self.root).as_posix() for path in self.files)
        return file_hashes(self.root, names)

    def blocks(self) -> Iterator[TokenBlock]:
        return _megatron_blocks(_prefix(self.source)) if self.form == "megatron" else _rows(self.files)


def find_token_files(source: Path) -> TokenFiles:
    """The files of a data set of tokens; InputError when there are none."""
    if source.is_dir():
        found = sorted(source.rglob("*.parquet"))
        if not found:
            raise InputError(
                f"{source}: no parquet files here; give a data set's folder, or a Megatron prefix"
            )
        return TokenFiles(source, "dataset", _training_split(source, found))
    if source.suffix == ".parquet" and source.exists():
        return TokenFiles(source, "dataset", (source,))
    prefix = _prefix(source)
    read_megatron(prefix)  # raises InputError
    files = tuple(prefix.with_name(prefix.name + suffix) for suffix in (".bin", ".idx"))
    return TokenFiles(source, "megatron", files)


def _training_split(folder: Path, found: Sequence[Path]) -> tuple[Path, ...]:
    """The files of the split `train`, by their names; all where none is, or no other split is there."""
    named = {path: SPLIT.search(path.relative_to(folder).as_posix()) for path in found}
    splits = {path: match[1] for path, match in named.items() if match}
    kept = tuple(path for path, split in splits.items() if split == "train")
    others = sorted({*splits.values()} - {"train"})
    if not kept or not others:
        return tuple(found)
    warn(
        f"{folder}: {len(found) - len(kept)} files beside the split train are left out "
        f"({', '.join(others)}); to import one, give its path"
    )
    return kept


def _prefix(source: Path) -> Path:
    return source.with_suffix("") if source.suffix in (".bin", ".idx") else source


def _check_encoded_by(beside: Path, tokenizer: str) -> None:
    """InputError for a tokenizer with other tokens than the one stored beside the tokens."""
    if holds_tokenizer(beside) and not same_vocabulary(beside, local_tokenizer(tokenizer)):
        raise InputError(f"{tokenizer}: has other tokens than {beside}, which encoded these; give that one")


def _import_stages(out: Path, files: TokenFiles, tokenizer: str, length: int) -> dict[str, Artifact]:
    """Artifacts by the name of their stage."""
    stages: dict[str, Artifact] = {}
    stages["tokenizer"] = write_tokenizer(out / "tokenizer", tokenizer, None)
    stages["tokens"] = build_artifact(
        out / "tokens",
        {"form": files.form},
        {**files.hashes(), "tokenizer": stages["tokenizer"].digest},
        partial(_write_tokens, files, stages["tokenizer"]),
    )
    check_enough(stages["tokens"], stages["tokens"].counts["tokens"], length)
    documents = stages["tokens"].counts["documents"]
    order = {"method": "given", "documents": documents}
    stages["order"] = build_artifact(out / "order", order, {}, partial(_write_given_order, documents))
    stages["instances"] = write_instances(out / "instances", stages["tokens"], stages["order"], length)
    return stages


def _write_tokens(files: TokenFiles, tokenizer: Artifact, folder: Path) -> dict[str, Any]:
    """Write the files of a `tokens` artifact; returns its counts."""
    vocab_size, dtype = tokenizer.counts["vocab_size"], id_dtype(tokenizer)
    decode = open_tokenizer(tokenizer).backend_tokenizer.decode_batch
    names: dict[str, int] = {}
    lengths, domains, sizes = array("q"), array("H"), array("q")
    with open(folder / TOKEN_FILE, "wb") as file, progress("tokens") as advance:
        for tokens_T, lengths_N, named in files.blocks():
            _check_ids(tokens_T, vocab_size, files.source)
            file.write(tokens_T.astype(dtype).tobytes())
            ids = [document.tolist() for document in np.split(tokens_T, np.cumsum(lengths_N))[:-1]]
            lengths.extend(lengths_N.tolist())
            sizes.extend(len(text.encode()) for text in decode(ids, skip_special_tokens=True))
            indices = [names.setdefault(name, len(names)) for name in named]
            limit_domains(len(names), files.source)
            domains.extend(indices)
            advance(len(lengths_N))
    if not sum(lengths):
        raise InputError(f"{files.source}: holds no tokens; check the path")
    ordered = sorted(names)  # as `prepare` numbers them, so that corpora can be joined
    number = {name: i for i, name in enumerate(ordered)}
    numbers = np.array([number[name] for name in names], np.uint16)
    write_document_arrays(folder, lengths, numbers[np.asarray(domains)], sizes)
    return {
        "documents": len(lengths),
        "tokens": sum(lengths),
        "dtype": dtype.name,
        "vocab_size": vocab_size,
        "eos_token_id": tokenizer.counts["eos_token_id"],
        "domains": ordered,
    }


def _check_ids(tokens_T: NDArray[np.integer], vocab_size: int, source: Path) -> None:
    outside = tokens_T[(tokens_T < 0) | (tokens_T >= vocab_size)]
    if len(outside):
        raise InputError(
            f"{source}: holds the id {outside[0]}, but the tokenizer has {vocab_size}; "
            "give the tokenizer that encoded these tokens"
        )


def _write_given_order(documents: int, folder: Path) -> dict[str, Any]:
    np.save(folder / "order.npy", np.arange(documents))
    return {"documents_in": documents, "documents": documents}


def _megatron_blocks(prefix: Path) -> Iterator[TokenBlock]:
    """The documents of an indexed data set; their domain is its name."""
    tokens, offsets = read_megatron(prefix)
    groups = np.flatnonzero(np.diff(offsets[:-1] // BLOCK_TOKENS)) + 1
    bounds = [0, *groups.tolist(), len(offsets) - 1]
    for first, last in pairwise(bounds):
        if last > first:
            tokens_T = np.asarray(tokens[offsets[first] : offsets[last]])
            yield tokens_T, np.diff(offsets[first : last + 1]), [prefix.name] * (last - first)


def _rows(files: tuple[Path, ...]) -> Iterator[TokenBlock]:
    """The rows of parquet files, or the pieces of rows that name them.

    The default domain is a file's name up to its first `-` or `.`.
    """
    for path in files:
        try:
            with open_columns(str(path), "parquet", ("input_ids", "domain", "piece_lengths")) as table:
                if "input_ids" not in table.names:
                    raise InputError(
                        f"{path}: no column input_ids (there are {', '.join(table.names)}); give a data set "
                        "of tokens, or run `loriini prepare` on one of texts"
                    )
                for batch in table.batches:
                    if batch is None:
                        raise InputError(f"{path}: a row is {TOO_LONG}; cut it into several")
                    yield _block(batch, path)
        except (BadRecord, OSError) as error:
            raise InputError(f"{path}: {error}; write it again") from error


def _block(batch: pyarrow.RecordBatch, path: Path) -> TokenBlock:
    """The rows of a batch, or their pieces; InputError for a row whose input_ids are null."""
    column = batch.column("input_ids")
    if column.null_count:
        raise InputError(f"{path}: a row has no input_ids; leave such rows out")
    if not isinstance(column, pyarrow.ListArray | pyarrow.LargeListArray | pyarrow.FixedSizeListArray):
        raise InputError(f"{path}: its input_ids are {column.type}; write lists of integers")
    tokens_T = column.flatten().to_numpy(zero_copy_only=False)
    if not np.issubdtype(tokens_T.dtype, np.integer):
        raise InputError(f"{path}: its input_ids are {tokens_T.dtype}, not integers; write lists of integers")
    named = batch.column("domain").to_pylist() if "domain" in batch.schema.names else [None] * len(batch)
    default = path.name.replace("-", ".").split(".", 1)[0]
    lengths_N = column.value_lengths().to_numpy(zero_copy_only=False)
    domains = [default if name is None else str(name) for name in named]
    if "piece_lengths" not in batch.schema.names:
        return tokens_T, lengths_N, domains
    pieces_N = _piece_lengths(batch.column("piece_lengths"), lengths_N, path)
    lengths_P = np.array([length for row in pieces_N for length in row], np.int64)
    return tokens_T, lengths_P, [name for name, row in zip(domains, pieces_N, strict=True) for _ in row]


def _piece_lengths(column: pyarrow.Array, lengths_N: NDArray[np.integer], path: Path) -> list[list[int]]:
    """The tokens of each piece of each row; InputError where they are not those of the row."""
    lists = isinstance(column, pyarrow.ListArray | pyarrow.LargeListArray)
    known = lists and pyarrow.types.is_integer(column.type.value_type) and not column.values.null_count
    rows = [row or [] for row in column.to_pylist()] if known else []
    if [sum(row) for row in rows] != lengths_N.tolist() or any(length < 0 for row in rows for length in row):
        raise InputError(f"{path}: the piece_lengths of a row are not its tokens; leave this column out")
    return rows
