"""Corpora to and from what other programs read: Megatron's indexed data sets, and Hugging Face data sets.

A Hugging Face data set is a folder of parquet files, which `datasets.load_dataset(FOLDER)` opens.
"""

import shutil
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from loriini.atomic import atomic, write_json
from loriini.convert.megatron import read_megatron, write_megatron
from loriini.corpus.instances import Instances, write_instances
from loriini.corpus.prepare import Corpus, manifest_of, open_corpus
from loriini.corpus.tokenizer import check_tokenizer, open_tokenizer, write_tokenizer
from loriini.corpus.tokens import TOKEN_FILE, check_domains, id_dtype, write_document_arrays
from loriini.errors import InputError
from loriini.jobs.artifact import MANIFEST, Artifact, build_artifact, file_hash
from loriini.jobs.lock import folder_lock
from loriini.progress import progress

CorpusFormat = Literal["megatron", "dataset"]
CORPUS_FORMATS = get_args(CorpusFormat)
TOKENS_AT_ONCE = 1 << 22
ROWS_PER_FILE = 1 << 16
TokenBlock = tuple[NDArray[np.integer], NDArray[np.integer], list[str]]
"""Some documents at a time: their tokens one after the other, their lengths, and their domains."""


def export_corpus(corpus: Corpus, form: CorpusFormat, out: Path) -> Path:
    """Write a corpus's instances, and its tokenizer beside them, into the new folder `out`.

    - `megatron`: `instances.bin` and `.idx`; an instance is a document there, since Megatron shuffles
      documents before it packs them and would otherwise undo the order.
    - `dataset`: parquet files with the columns `input_ids` (length + 1 of them), `domain` (where most of
      them come from), and `documents` and `piece_lengths`, which tell what the instance was put together of.

    Raises InputError when `out` is there already.
    """
    if out.exists():
        raise InputError(f"{out}: is there already; choose another --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic(out) as folder:
        folder.mkdir()
        if form == "megatron":
            _write_megatron(corpus.instances, folder / "instances")
        else:
            _write_dataset(corpus.instances, folder)
        shutil.copytree(corpus.tokenizer, folder / "tokenizer", ignore=shutil.ignore_patterns(MANIFEST))
    return out


def import_corpus(out: Path, source: Path, tokenizer: str, length: int) -> Corpus:
    """Make the corpus `out` of tokens from elsewhere, in the order in which they lie.

    Args:
        out: the corpus's folder. Finished stages are not done again.
        source: a Megatron data set's prefix (or its `.bin` or `.idx`), or a Hugging Face data set: a folder
            of parquet files, or one such file, with a column `input_ids` and, if it likes, a `domain`.
        tokenizer: the path of the tokenizer that made the tokens.
        length: tokens predicted in an instance; instances of `length` + 1 tokens come back as they were.

    Raises InputError for a source that is neither, for an id that the tokenizer does not have, and while
    another process makes `out`.
    """
    if tokenizer.startswith("bpe:"):
        raise InputError(f"{tokenizer}: the tokens are there already; give the path of their tokenizer")
    check_tokenizer(tokenizer)
    files = _files(source)
    out.mkdir(parents=True, exist_ok=True)
    with folder_lock(out):
        stages = _import_stages(out, source, files, tokenizer, length)
        settings = {"source": str(source), "tokenizer": tokenizer, "length": length, "order": "given"}
        write_json(out / MANIFEST, {**manifest_of(settings, stages), "shared_instance_cosine": {}})
    return open_corpus(out)


def _import_stages(
    out: Path, source: Path, files: list[Path], tokenizer: str, length: int
) -> dict[str, Artifact]:
    """Every stage's artefact by name."""
    stages: dict[str, Artifact] = {}
    stages["tokenizer"] = write_tokenizer(out / "tokenizer", tokenizer, None)
    stages["tokens"] = _import_tokens(out / "tokens", source, files, stages["tokenizer"])
    documents = stages["tokens"].counts["documents"]
    stages["order"] = build_artifact(
        out / "order",
        {"method": "given", "documents": documents},
        {},
        lambda folder: _given_order(folder, documents),
    )
    stages["instances"] = write_instances(out / "instances", stages["tokens"], stages["order"], length)
    return stages


def _write_megatron(instances: Instances, prefix: Path) -> None:
    """The instances as an indexed data set, of int32 where the ids need more than 16 bits."""
    lengths_I = np.full(len(instances), instances.length + 1, np.int32)
    dtype = "<u2" if instances.tokens_IL.dtype.itemsize == 2 else "<i4"
    rows = max(1, TOKENS_AT_ONCE // (instances.length + 1))
    with progress("export", len(instances)) as advance:

        def blocks() -> Iterator[NDArray[np.integer]]:
            for first in range(0, len(instances), rows):
                block = instances.tokens_IL[first : first + rows]
                yield block
                advance(len(block))

        write_megatron(prefix, blocks(), lengths_I, dtype)


def _write_dataset(instances: Instances, folder: Path) -> None:
    """The instances as parquet files of at most ROWS_PER_FILE rows."""
    count = -(-len(instances) // ROWS_PER_FILE)
    with progress("export", len(instances)) as advance:
        for number in range(count):
            name = f"train-{number:05}-of-{count:05}.parquet"
            first = number * ROWS_PER_FILE
            with pyarrow.parquet.ParquetWriter(folder / name, SCHEMA, compression="zstd") as file:
                for start in range(first, min(first + ROWS_PER_FILE, len(instances)), 1024):
                    ids = np.arange(start, min(start + 1024, first + ROWS_PER_FILE, len(instances)))
                    file.write_batch(_rows(instances, ids))
                    advance(len(ids))


SCHEMA = pyarrow.schema(
    {
        "input_ids": pyarrow.list_(pyarrow.int32()),
        "domain": pyarrow.string(),
        "documents": pyarrow.list_(pyarrow.int64()),
        "piece_lengths": pyarrow.list_(pyarrow.int32()),
    }
)


def _rows(instances: Instances, ids_B: NDArray[np.int64]) -> pyarrow.RecordBatch:
    """Consecutive instances as rows of a table."""
    pieces = instances.pieces
    starts = pieces.starts_I[ids_B[0] : ids_B[-1] + 2]
    held = slice(starts[0], starts[-1])
    ends = np.arange(len(ids_B) + 1, dtype=np.int32)
    lists = pyarrow.ListArray.from_arrays
    tokens = instances.tokens_IL[ids_B].astype(np.int32)
    columns = [
        lists(ends * tokens.shape[1], tokens.ravel()),
        pyarrow.array([instances.domain_names[i] for i in instances.domains_I[ids_B]]),
        lists((starts - starts[0]).astype(np.int32), np.asarray(pieces.documents_P[held], np.int64)),
        lists((starts - starts[0]).astype(np.int32), np.asarray(pieces.lengths_P[held], np.int32)),
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _files(source: Path) -> list[Path]:
    """The parquet files of a data set, or the two of a Megatron data set; InputError when there are none."""
    if source.is_dir():
        found = sorted(source.rglob("*.parquet"))
        if not found:
            raise InputError(
                f"{source}: no parquet files here; give a data set's folder, or a Megatron prefix"
            )
        return found
    if source.suffix == ".parquet" and source.exists():
        return [source]
    prefix = _prefix(source)
    read_megatron(prefix)
    return [prefix.with_name(prefix.name + suffix) for suffix in (".bin", ".idx")]


def _prefix(source: Path) -> Path:
    return source.with_suffix("") if source.suffix in (".bin", ".idx") else source


def _import_tokens(folder: Path, source: Path, files: list[Path], tokenizer: Artifact) -> Artifact:
    """Build the `tokens` artefact of another program's tokens."""
    of_megatron = files[0].suffix == ".bin"
    root = source if source.is_dir() else source.parent
    inputs = {path.relative_to(root).as_posix(): file_hash(path) for path in files}
    inputs |= {"tokenizer": tokenizer.digest}
    vocab_size, dtype = tokenizer.counts["vocab_size"], id_dtype(tokenizer)

    def checked(block: TokenBlock) -> TokenBlock:
        outside = block[0][(block[0] < 0) | (block[0] >= vocab_size)]
        if len(outside):
            raise InputError(
                f"{source}: holds the id {outside[0]}, but the tokenizer has {vocab_size}; "
                "give the tokenizer that made these tokens"
            )
        return block

    def write(temporary: Path) -> dict[str, Any]:
        blocks = _megatron_blocks(_prefix(source)) if of_megatron else _dataset_blocks(files)
        decode = open_tokenizer(tokenizer).backend_tokenizer.decode_batch
        names: dict[str, int] = {}
        lengths, domains, sizes = array("q"), array("H"), array("q")
        with open(temporary / TOKEN_FILE, "wb") as file, progress("tokens") as advance:
            for tokens, lengths_N, named in map(checked, blocks):
                file.write(tokens.astype(dtype).tobytes())
                ids = [part.tolist() for part in np.split(tokens, np.cumsum(lengths_N)[:-1])]
                lengths.extend(lengths_N.tolist())
                sizes.extend(len(text.encode()) for text in decode(ids, skip_special_tokens=True))
                indices = [names.setdefault(name, len(names)) for name in named]
                check_domains(len(names), source)
                domains.extend(indices)
                advance(len(lengths_N))
        if not lengths:
            raise InputError(f"{source}: holds no documents; check the path")
        write_document_arrays(temporary, lengths, domains, sizes)
        return {
            "documents": len(lengths),
            "tokens": sum(lengths),
            "dtype": dtype.name,
            "vocab_size": vocab_size,
            "eos_token_id": tokenizer.counts["eos_token_id"],
            "domains": list(names),
        }

    return build_artifact(folder, {"form": "megatron" if of_megatron else "dataset"}, inputs, write)


def _megatron_blocks(prefix: Path) -> Iterator[TokenBlock]:
    """The documents of an indexed data set, whose domain is its name."""
    tokens, offsets = read_megatron(prefix)
    groups = np.flatnonzero(np.diff(offsets[:-1] // TOKENS_AT_ONCE)) + 1
    bounds = [0, *groups.tolist(), len(offsets) - 1]
    for first, last in pairwise(bounds):
        if last > first:
            held = np.asarray(tokens[offsets[first] : offsets[last]])
            yield held, np.diff(offsets[first : last + 1]), [prefix.name] * (last - first)


def _dataset_blocks(files: list[Path]) -> Iterator[TokenBlock]:
    """The rows of parquet files; without a column `domain`, a file's name up to its first `-` or `.`."""
    for path in files:
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                present = file.schema_arrow.names
                if "input_ids" not in present:
                    raise InputError(
                        f"{path}: no column input_ids (there are {', '.join(present)}); give a data set of "
                        "tokens, or `loriini prepare` one of texts"
                    )
                wanted = ["input_ids", *(["domain"] if "domain" in present else [])]
                for batch in file.iter_batches(1024, columns=wanted):
                    yield _block(batch, path)
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(f"{path}: unreadable parquet ({error}); write it again") from error


def _block(batch: pyarrow.RecordBatch, path: Path) -> TokenBlock:
    """Some rows' tokens, lengths and domains; InputError for a row without tokens."""
    column = batch.column("input_ids")
    if column.null_count:
        raise InputError(f"{path}: a row has no input_ids; leave such rows out")
    tokens = column.flatten().to_numpy(zero_copy_only=False)
    if not np.issubdtype(tokens.dtype, np.integer):
        raise InputError(f"{path}: its input_ids are {tokens.dtype}, not integers; write lists of integers")
    named = batch.column("domain").to_pylist() if "domain" in batch.schema.names else [None] * len(batch)
    of_file = path.name.replace("-", ".").split(".", 1)[0]
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    return tokens, lengths, [of_file if name is None else str(name) for name in named]


def _given_order(folder: Path, documents: int) -> dict[str, Any]:
    np.save(folder / "order.npy", np.arange(documents))
    return {"documents_in": documents, "documents": documents}
