"""Rows of parquet files as pieces of documents.

Axes: N rows, P pieces of documents, T tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from loriini.common.errors import InputError
from loriini.data.read.columns import open_columns
from loriini.data.read.records import TOO_LONG, BadRecord, domain_from_name, folders_above, name_of

LISTS = (pyarrow.ListArray, pyarrow.LargeListArray, pyarrow.FixedSizeListArray)
COLUMNS = ("input_ids", "domain", "documents", "piece_lengths", "piece_domains")


@dataclass(frozen=True)
class TokenBlock:
    """Consecutive pieces of documents."""

    tokens_T: NDArray[np.integer]
    lengths_P: Sequence[int]
    domains_P: Sequence[str]
    documents_P: Sequence[int | None]
    """The number of each piece's document: pieces of one number that follow each other, also from block to
    block, are one document. A piece without a number is a document."""


def read_rows(files: Sequence[Path]) -> Iterator[TokenBlock]:
    """The pieces of each row where the files name them (`piece_lengths`), or else each row as a document.

    The default domain is that of a file's name (`domain_from_name`), or else its folders'. InputError for
    damaged files, for rows without tokens or too long to be decoded, and for columns that do not agree.
    """
    for path in files:
        try:
            with open_columns(str(path), "parquet", COLUMNS) as table:
                if "input_ids" not in table.names:
                    raise InputError(
                        f"{path}: no column input_ids (there are {', '.join(table.names)}); give a data set "
                        "of tokens, or run `loriini prepare` on one of texts"
                    )
                if repeated := [name for name in COLUMNS if table.names.count(name) > 1]:
                    raise InputError(f"{path}: two columns named {repeated[0]}; leave one out")
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
    if not isinstance(column, LISTS):
        raise InputError(f"{path}: its input_ids are {column.type}; write lists of integers")
    ids = column.flatten()
    if ids.null_count:
        raise InputError(f"{path}: a row has a null among its input_ids; leave such rows out")
    tokens_T = ids.to_numpy(zero_copy_only=False)
    if not np.issubdtype(tokens_T.dtype, np.integer):
        raise InputError(f"{path}: its input_ids are {tokens_T.dtype}, not integers; write lists of integers")
    columns = {name: batch.column(name) for name in batch.schema.names}
    named = columns["domain"].to_pylist() if "domain" in columns else [None] * len(batch)
    default = domain_from_name(path.name, folders_above(path))
    lengths_N = column.value_lengths().to_pylist()
    domains_N = [_domain(name, path) or default for name in named]
    if "piece_lengths" not in columns:
        return TokenBlock(tokens_T, lengths_N, domains_N, [None] * len(batch))
    lengths = _whole_numbers(columns["piece_lengths"])
    if list(map(sum, lengths)) != lengths_N:
        raise _malformed(path, "piece_lengths", "its tokens")
    pieces_N = list(map(len, lengths))
    domains_P = [name for name, pieces in zip(domains_N, pieces_N, strict=True) for _ in range(pieces)]
    documents_P: list[int | None] = [None] * len(domains_P)
    if "documents" in columns:
        documents = _whole_numbers(columns["documents"])
        if list(map(len, documents)) != pieces_N:
            raise _malformed(path, "documents", "a number for each of its pieces")
        documents_P = _flat(documents)
    if "piece_domains" in columns:
        names = _lists(columns["piece_domains"])
        if list(map(len, names)) != pieces_N:
            raise _malformed(path, "piece_domains", "a name for each of its pieces")
        pairs = zip(_flat(names), domains_P, strict=True)
        domains_P = [_domain(name, path) or row_domain for name, row_domain in pairs]
    return TokenBlock(tokens_T, _flat(lengths), domains_P, documents_P)


def _domain(name: Any, path: Path) -> str:
    """A domain's name, "" for null and NaN. InputError for a list, a struct or bytes."""
    try:
        return name_of(name, "domain", "the domain")
    except BadRecord as error:
        raise InputError(f"{path}: {error}") from error


def _malformed(path: Path, name: str, expected: str) -> InputError:
    return InputError(f"{path}: the {name} of a row are not {expected}; leave this column out")


def _whole_numbers(column: pyarrow.Array) -> list[list[int]]:
    """The list of each row; [] for a column that holds anything but lists of whole numbers from 0."""
    rows = _lists(column)
    integers = bool(rows) and pyarrow.types.is_integer(column.type.value_type)
    return rows if integers and all(n is not None and n >= 0 for n in _flat(rows)) else []


def _lists(column: pyarrow.Array) -> list[list[Any]]:
    """The list of each row, null as an empty one; [] for a column of another type."""
    return [row or [] for row in column.to_pylist()] if isinstance(column, LISTS) else []


def _flat(rows: Sequence[Sequence[Any]]) -> list[Any]:
    return list(chain.from_iterable(rows))
