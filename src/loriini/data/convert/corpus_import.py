"""Corpora from tokens of other programs: Megatron's indexed data sets and Hugging Face data sets."""

from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from loriini.common.errors import InputError
from loriini.common.folders import MANIFEST
from loriini.common.progress import inform, progress, warn
from loriini.common.tokenizers import holds_tokenizer
from loriini.data.convert.corpus_export import BLOCK_TOKENS
from loriini.data.convert.megatron import megatron_files, read_megatron
from loriini.data.jobs.artifact import Artifact, build_artifact, file_hashes, write_manifest
from loriini.data.jobs.lock import folder_lock
from loriini.data.prepare.arrays import ORDER
from loriini.data.prepare.corpus import STAGES, Corpus, load_stages, manifest_of, open_corpus
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.prepare.text.documents import limit_domains
from loriini.data.prepare.tokenized.instances import check_enough, write_instances
from loriini.data.prepare.tokenized.tokenizer import (
    local_tokenizer,
    read_tokenizer,
    same_vocabulary,
    write_tokenizer,
)
from loriini.data.prepare.tokenized.tokens import TOKEN_FILE, id_dtype, write_document_arrays
from loriini.data.read.formats import batch_rows
from loriini.data.read.names import domain_from_name, folders_above, heldout_files
from loriini.data.read.records import BadRecord, scalar_text

TokenFormat = Literal["megatron", "hf"]
Block = tuple[NDArray[np.integer], Sequence[int], Sequence[str], int]
"""Consecutive documents: their tokens, the length and domain of each, and how many tokens a mask left out."""
MASKS = {"attention_mask": 0, "labels": -100}
"""Columns that mark padding, and the value that marks it; the first one present is used."""
GIVEN = "given"
"""The name of the order of imported documents."""
LISTS = (pyarrow.ListArray, pyarrow.LargeListArray, pyarrow.FixedSizeListArray)
IMPORTED = ("tokenizer", "tokens", "order", "instances")
"""Stages of an imported corpus."""
DECODED_TOKENS = 1 << 20
"""Documents of about this many tokens are decoded at once; a token takes 36 bytes in a list of integers."""


def import_corpus(
    out: Path,
    source: Path,
    form: TokenFormat,
    tokenizer: str,
    length: int = PrepareSettings.length,
    eos: str | None = None,
) -> Corpus:
    """Create the corpus `out` from tokens of another program, in the order in which they are stored.

    Args:
        out: the corpus's folder. Finished stages are not run again.
        source: for `megatron`, a data set's prefix (or its `.bin` or `.idx`); for `hf`, a parquet file, or a
            folder of them, read in the order of their names without those of other splits than `train`. A row
            is a document: `input_ids`, optionally `domain` (else from the file's name) and a mask (MASKS).
        form: the format of the source.
        tokenizer: the path or Hub id of the tokenizer that encoded the tokens. It is compared with the folder
            `tokenizer` next to them, which `export_corpus` writes, if there is one.
        length: tokens predicted in an instance. Exported instances of `length` + 1 tokens are restored.
        eos: the token that ends a document, where the tokenizer's files do not agree on one.

    Raises:
        InputError: the source has another format or is shorter than an instance, an id is not in the
            tokenizer, `out` holds other files where a stage belongs, or another process writes there.
    """
    if tokenizer.startswith("bpe:"):
        raise InputError(f"{tokenizer}: the tokens exist already; give the path of their tokenizer")
    if length < 1:
        raise InputError(f"length is {length}; it must be at least 1")
    load_stages(out)
    if other := [name for name in STAGES if name not in IMPORTED and (out / name).exists()]:
        raise InputError(f"{out}: holds {', '.join(other)} of another corpus; choose another --out")
    read_tokenizer(local_tokenizer(tokenizer), eos)  # raises InputError
    files = _token_files(source, form)
    root = source if source.is_dir() else source.parent
    stored = root / "tokenizer"
    if holds_tokenizer(stored) and not same_vocabulary(stored, local_tokenizer(tokenizer)):
        raise InputError(f"{tokenizer}: has other tokens than {stored}, which encoded these; give that one")
    with folder_lock(out):
        stages: dict[str, Artifact] = {}
        stages["tokenizer"] = write_tokenizer(out / "tokenizer", tokenizer, None, eos=eos)
        hashes = file_hashes(root, [path.relative_to(root).as_posix() for path in files])
        stages["tokens"] = build_artifact(
            out / "tokens",
            {"form": form},
            {**hashes, "tokenizer": stages["tokenizer"].digest},
            partial(_write_tokens, source, form, files, stages["tokenizer"]),
        )
        check_enough(stages["tokens"], stages["tokens"].counts["tokens"], length)
        documents = stages["tokens"].counts["documents"]
        order = {"order": GIVEN, "documents": documents}
        stages["order"] = build_artifact(out / "order", order, {}, partial(_write_given_order, documents))
        stages["instances"] = write_instances(out / "instances", stages["tokens"], stages["order"], length)
        settings = {"source": str(source), "tokenizer": tokenizer, "length": length, "order": GIVEN}
        write_manifest(out / MANIFEST, {**manifest_of(settings, stages), "shared_instance_cosine": {}})
    return open_corpus(out)


def _token_files(source: Path, form: TokenFormat) -> list[Path]:
    """The files of a data set of tokens; InputError when there are none."""
    if form == "megatron":
        read_megatron(_prefix(source))  # raises InputError
        return list(megatron_files(_prefix(source)))
    if not source.is_dir():
        if not source.exists():
            raise InputError(f"{source}: no such file or folder; check the path")
        return [source]
    names = [path.relative_to(source).as_posix() for path in sorted(source.rglob("*.parquet"))]
    if not names:
        raise InputError(f"{source}: no parquet files here; give the folder of a data set of tokens")
    held = set(heldout_files(names, folders=None))
    if held:
        warn(f"{source}: {len(held)} files of other splits left out; to import one, give its path")
    return [source / name for name in names if name not in held]


def _prefix(source: Path) -> Path:
    return source.with_suffix("") if source.suffix in (".bin", ".idx") else source


def _write_tokens(
    source: Path, form: TokenFormat, files: list[Path], tokenizer: Artifact, folder: Path
) -> dict[str, Any]:
    """Write the files of a `tokens` artifact; returns its counts."""
    vocab_size, eos_token_id = tokenizer.counts["vocab_size"], tokenizer.counts["eos_token_id"]
    names: dict[str, int] = {}
    lengths, domains = array("q"), array("H")
    empty = ends = masked = 0
    blocks = _megatron_blocks(_prefix(source)) if form == "megatron" else _parquet_blocks(files)
    with open(folder / TOKEN_FILE, "wb") as file, progress("tokens") as advance:
        for tokens_T, lengths_D, domains_D, left_out in blocks:
            if len(outside := tokens_T[(tokens_T < 0) | (tokens_T >= vocab_size)]):
                there = f"holds the id {outside[0]}, but the tokenizer has {vocab_size}"
                raise InputError(f"{source}: {there}; give the tokenizer that encoded these tokens")
            masked += left_out
            ends += int(np.count_nonzero(tokens_T == eos_token_id))
            file.write(tokens_T.astype(id_dtype(tokenizer)).tobytes())
            lengths.extend(length for length in lengths_D if length)
            empty += sum(not length for length in lengths_D)
            named = (name for name, length in zip(domains_D, lengths_D, strict=True) if length)
            numbered = [names.setdefault(name, len(names)) for name in named]
            limit_domains(len(names), source)
            domains.extend(numbered)
            advance(len(lengths_D))
    if not lengths:
        raise InputError(f"{source}: holds no tokens; check the path")
    if masked:
        inform(f"{source}: {masked:,} tokens of padding left out")
    if not ends:
        warn(
            f"{source}: no EOS in {len(lengths):,} documents, so a model cannot learn to end; end each with "
            f"the id {eos_token_id}"
        )
    lengths_N = np.asarray(lengths)
    ordered = sorted(names)  # as `prepare` numbers them, so that corpora can be joined
    places = {name: place for place, name in enumerate(ordered)}
    numbers = np.array([places[name] for name in names], np.uint16)
    sizes_N = _text_sizes(folder / TOKEN_FILE, lengths_N, tokenizer)
    write_document_arrays(folder, lengths_N, numbers[np.asarray(domains)], sizes_N)
    return {
        "documents": len(lengths_N),
        "empty": empty,
        "masked": masked,
        "tokens": int(lengths_N.sum()),
        "eos_tokens": ends,
        "dtype": id_dtype(tokenizer).name,
        "vocab_size": vocab_size,
        "eos_token_id": eos_token_id,
        "domains": ordered,
    }


def _text_sizes(path: Path, lengths_N: NDArray[np.int64], tokenizer: Artifact) -> NDArray[np.int64]:
    """UTF-8 bytes of the text of each document in a file of tokens, (N,)."""
    decode = read_tokenizer(tokenizer.folder).backend_tokenizer.decode_batch
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths_N)])
    sizes = array("q")
    with open(path, "rb") as file, progress("text sizes", len(lengths_N)) as advance:
        for first, last in _groups(bounds, DECODED_TOKENS):
            tokens_T = np.fromfile(file, id_dtype(tokenizer), bounds[last] - bounds[first])
            ids = [part.tolist() for part in np.split(tokens_T, bounds[first + 1 : last] - bounds[first])]
            sizes.extend(len(text.encode()) for text in decode(ids, skip_special_tokens=True))
            advance(last - first)
    return np.asarray(sizes)


def _groups(bounds: NDArray[np.integer], size: int) -> Iterator[tuple[int, int]]:
    """Ranges [first, last) of documents, which begin and end at `bounds`, each of about `size` tokens."""
    cuts = np.flatnonzero(np.diff(bounds[:-1] // size)) + 1
    return pairwise([0, *cuts.tolist(), len(bounds) - 1])


def _write_given_order(documents: int, folder: Path) -> dict[str, Any]:
    np.save(folder / ORDER, np.arange(documents))
    return {"documents_in": documents, "documents": documents}


def _megatron_blocks(prefix: Path) -> Iterator[Block]:
    """The documents of an indexed data set; their domain is its name."""
    tokens, offsets = read_megatron(prefix)
    for first, last in _groups(offsets, BLOCK_TOKENS):
        lengths = np.diff(offsets[first : last + 1]).tolist()
        yield np.asarray(tokens[offsets[first] : offsets[last]]), lengths, [prefix.name] * len(lengths), 0


def _parquet_blocks(files: Sequence[Path]) -> Iterator[Block]:
    """The rows of parquet files; InputError for damaged files and for ids that are no lists of integers."""
    for path in files:
        try:
            with pyarrow.parquet.ParquetFile(path) as table:
                names = table.schema_arrow.names
                if names.count("input_ids") != 1:
                    there = f"no column input_ids, or two (there are {', '.join(names)})"
                    raise InputError(f"{path}: {there}; give tokens, or run `loriini prepare` on texts")
                columns = [name for name in ("input_ids", "domain", *MASKS) if name in names]
                for batch in table.iter_batches(batch_rows(table, path.stat().st_size), columns=columns):
                    yield _rows(batch, path)
        except (BadRecord, EOFError, OSError, pyarrow.ArrowException) as error:
            raise InputError(f"{path}: {error}; write it again") from error


def _rows(batch: pyarrow.RecordBatch, path: Path) -> Block:
    ids_T, lengths_D = _integers(batch, "input_ids", path)
    default = domain_from_name(path.name, folders_above(path))
    named = batch.column("domain").to_pylist() if "domain" in batch.schema.names else [None] * len(batch)
    domains = [scalar_text(name, "domain", "the domain") or default for name in named]
    for mask in [name for name in MASKS if name in batch.schema.names][:1]:
        values_T, mask_lengths_D = _integers(batch, mask, path)
        if mask_lengths_D != lengths_D:
            raise InputError(f"{path}: a row's {mask} is not as long as its input_ids; write it again")
        row_T, kept_T = np.repeat(np.arange(len(batch)), lengths_D), values_T != MASKS[mask]
        lengths_D = np.bincount(row_T[kept_T], minlength=len(batch)).tolist()
        return ids_T[kept_T], lengths_D, domains, int((~kept_T).sum())
    return ids_T, lengths_D, domains, 0


def _integers(batch: pyarrow.RecordBatch, name: str, path: Path) -> tuple[NDArray[np.integer], list[int]]:
    """The values of a column of lists of integers, and the length of each list; else InputError."""
    column = batch.column(name)
    if not isinstance(column, LISTS) or not pyarrow.types.is_integer(column.type.value_type):
        raise InputError(f"{path}: its {name} are {column.type}; write lists of integers")
    if column.null_count or column.flatten().null_count:
        raise InputError(f"{path}: a row has a null for or among its {name}; leave such rows out")
    return column.flatten().to_numpy(zero_copy_only=False), column.value_lengths().to_pylist()
