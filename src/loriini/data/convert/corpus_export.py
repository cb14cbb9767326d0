"""Corpora to Megatron's indexed data sets and to Hugging Face data sets."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from loriini.common.atomic import atomic
from loriini.common.errors import InputError
from loriini.common.folders import MANIFEST
from loriini.common.progress import inform, progress
from loriini.data.convert.megatron import write_megatron
from loriini.data.prepare.corpus import Corpus
from loriini.data.prepare.tokenized.instances import Instances

CorpusFormat = Literal["megatron", "parquet"]
BLOCK_TOKENS = 1 << 22
FILE_TOKENS = 1 << 25


def export_corpus(corpus: Corpus, form: CorpusFormat, out: Path) -> Path:
    """Write a corpus's instances and its tokenizer into the new folder `out`.

    - `megatron`: `instances.bin` and `.idx`. Every instance is a document, since Megatron shuffles documents
      before it packs them and would otherwise undo the order. Its samples begin `--seq-length` tokens apart:
      a sample is one instance only if that is length + 1, as a message says. The last target of a sample is
      then the first token of the next instance.
    - `parquet`: files which `datasets.load_dataset(FOLDER)` opens, with the columns `input_ids`
      (length + 1), `domain` (that of most of its tokens), and for each piece of a document in the instance:
      `documents` (the document's number), `piece_lengths` (the piece's tokens) and `piece_domains` (the
      document's domain).

    Raises InputError when `out` exists.
    """
    if out.exists():
        raise InputError(f"{out}: exists already; choose another --out")
    target = Path(os.path.realpath(out))  # a link cannot be replaced by a folder
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic(target) as folder:
        folder.mkdir()
        if form == "megatron":
            _write_megatron(corpus.instances, folder / "instances")
        else:
            _write_parquet(corpus, folder)
        shutil.copytree(corpus.tokenizer, folder / "tokenizer", ignore=shutil.ignore_patterns(MANIFEST))
    return out


def _write_megatron(instances: Instances, prefix: Path) -> None:
    """Write the instances as an indexed data set of uint16, or int32 if the ids need more than 16 bits."""
    lengths_I = np.full(len(instances), instances.length + 1, np.int32)
    dtype = "<u2" if instances.tokens_IL.dtype.itemsize == 2 else "<i4"
    rows = max(1, BLOCK_TOKENS // (instances.length + 1))
    with progress("export", len(instances)) as advance:

        def blocks() -> Iterator[NDArray[np.integer]]:
            for first in range(0, len(instances), rows):
                block = instances.read(slice(first, first + rows))
                yield block
                advance(len(block))

        write_megatron(prefix, blocks(), lengths_I, dtype)
    inform(
        f"{prefix.name}: give Megatron --seq-length {instances.length + 1}, with which each sample is one "
        f"instance; for a context of {instances.length}, prepare with --length {instances.length - 1}"
    )


def _write_parquet(corpus: Corpus, folder: Path) -> None:
    """Write the instances as parquet files of about FILE_TOKENS tokens, at least one instance."""
    instances = corpus.instances
    rows = max(1, FILE_TOKENS // (instances.length + 1))
    starts = range(0, len(instances), rows)
    with progress("export", len(instances)) as advance:
        for number, first in enumerate(starts):
            table = _table(corpus, first, min(first + rows, len(instances)))
            path = folder / f"train-{number:05}-of-{len(starts):05}.parquet"
            pyarrow.parquet.write_table(table, path, compression="zstd")
            advance(len(table))


def _table(corpus: Corpus, first: int, last: int) -> pyarrow.Table:
    """The instances `first` … `last` - 1 as rows."""
    instances, pieces = corpus.instances, corpus.instances.pieces.block(first, last)
    documents_P = np.asarray(pieces.documents_P, np.int64)
    ends, piece_ends = np.arange(last - first + 1, dtype=np.int32), pieces.starts_I.astype(np.int32)
    lists = pyarrow.ListArray.from_arrays
    tokens = instances.read(slice(first, last)).astype(np.int32)
    names = [corpus.tokens.domain_names[i] for i in corpus.tokens.domains[documents_P]]
    columns = {
        "input_ids": lists(ends * tokens.shape[1], tokens.ravel()),
        "domain": [instances.label_names[i] for i in instances.domains_I[first:last]],
        "documents": lists(piece_ends, documents_P),
        "piece_lengths": lists(piece_ends, np.asarray(pieces.lengths_P, np.int32)),
        "piece_domains": lists(piece_ends, names),
    }
    return pyarrow.table(columns)
