"""Corpora from tokens of other programs: Megatron's indexed data sets and Hugging Face data sets."""

import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.common.errors import InputError
from loriini.common.hub import holds_tokenizer
from loriini.common.progress import progress, warn
from loriini.data.convert.corpus_export import BLOCK_TOKENS, CorpusFormat
from loriini.data.convert.megatron import megatron_files, read_megatron
from loriini.data.convert.token_rows import TokenBlock, read_rows
from loriini.data.jobs.artifact import (
    MANIFEST,
    Artifact,
    build_artifact,
    file_hashes,
    read_manifest,
    write_manifest,
)
from loriini.data.jobs.lock import folder_lock
from loriini.data.prepare.prepare import Corpus, manifest_of, open_corpus
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.prepare.similarity.order import GIVEN
from loriini.data.prepare.stages import STAGES
from loriini.data.prepare.text.documents import limit_domains
from loriini.data.prepare.tokenized.instances import check_enough, write_instances
from loriini.data.prepare.tokenized.tokenizer import (
    local_tokenizer,
    read_tokenizer,
    same_vocabulary,
    write_tokenizer,
)
from loriini.data.prepare.tokenized.tokens import TOKEN_FILE, id_dtype, write_document_arrays
from loriini.data.prepare.verify import check_stages
from loriini.data.read.split import HELDOUT, heldout_files, split_of

IMPORTED = ("tokenizer", "tokens", "order", "instances")
"""Stages of an imported corpus."""
DECODED_TOKENS = 1 << 20
"""Tokens decoded at once; each takes 36 bytes in a list of integers."""
ROWS_PER_EOS = 1000
"""Rows of a data set in which there is at least one EOS, even where each is a small part of a document; a few
more may stand in texts that spell it.
"""


def import_corpus(out: Path, source: Path, tokenizer: str, length: int = PrepareSettings.length) -> Corpus:
    """Create the corpus `out` from tokens of another program, in the order in which they are stored.

    Args:
        out: the corpus's folder. Finished stages are not run again.
        source: a Megatron data set's prefix (or its `.bin` or `.idx`), or a Hugging Face data set: a parquet
            file, or a folder of them, whose split `train` is read. Files are read in the order of their
            names, with digits as numbers. They have a column `input_ids` and optionally `domain` and
            `piece_lengths`, the tokens of each piece of a document in a row; with the latter, optionally also
            `documents` and `piece_domains`, the number and domain of each piece's document.
        tokenizer: the path of the tokenizer that encoded the tokens. It is compared with the folder
            `tokenizer` next to them, which `export_corpus` writes, if there is one.
        length: tokens predicted in an instance. Exported instances of `length` + 1 tokens are restored.

    Raises:
        InputError: the source is neither, or shorter than an instance, an id is not in the tokenizer, `out`
            holds other files where a stage belongs, or another process works on it.
    """
    if tokenizer.startswith("bpe:"):
        raise InputError(f"{tokenizer}: the tokens exist already; give the path of their tokenizer")
    if length < 1:
        raise InputError(f"length is {length}; it must be at least 1")
    _check_out(out)
    read_tokenizer(local_tokenizer(tokenizer))  # raises InputError
    files = find_token_files(source)
    _check_encoded_by(files.root / "tokenizer", tokenizer)
    out.mkdir(parents=True, exist_ok=True)
    with folder_lock(out):
        stages = _import_stages(out, files, tokenizer, length)
        settings = {"source": str(source), "tokenizer": tokenizer, "length": length, "order": GIVEN}
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
        return _megatron_blocks(_prefix(self.source)) if self.form == "megatron" else read_rows(self.files)


def find_token_files(source: Path) -> TokenFiles:
    """The files of a data set of tokens; InputError when there are none."""
    if source.is_dir():
        paths = sorted(source.rglob("*.parquet"), key=by_number)
        if not paths:
            raise InputError(f"{source}: {_without_parquet(source)}")
        return TokenFiles(source, "dataset", _training_split(source, paths))
    if source.suffix == ".parquet":
        if not source.exists():
            raise InputError(f"{source}: no such file; check the path")
        return TokenFiles(source, "dataset", (source,))
    prefix = _prefix(source)
    if not any(path.exists() for path in (source, *megatron_files(prefix))):
        raise InputError(f"{source}: no such file, folder or Megatron prefix; check the path")
    read_megatron(prefix)  # raises InputError
    return TokenFiles(source, "megatron", megatron_files(prefix))


def by_number(path: Path) -> tuple[list[list[str | int]], Path]:
    """A sort key that reads runs of digits as numbers: part-2 before part-10."""
    # split by a group, every second piece is a number
    pieces = [re.split("([0-9]+)", part) for part in path.parts]
    return [[int(piece) if i % 2 else piece for i, piece in enumerate(part)] for part in pieces], path


def _check_out(out: Path) -> None:
    """InputError for a folder with stages that no import makes, or with other files in their place."""
    check_stages(out)
    if other := [s.name for s in STAGES if s.name not in IMPORTED and (out / s.name).exists()]:
        raise InputError(f"{out}: holds {', '.join(other)} of another corpus; choose another --out")


def _without_parquet(folder: Path) -> str:
    """What a folder without parquet files is, and the remedy."""
    with suppress(InputError):  # a manifest.json of another program
        if read_manifest(folder / MANIFEST, ("stages",)):
            return "is a corpus already; train on it as it is"
    prefixes = [_prefix(path) for path in sorted(folder.rglob("*.idx"))]
    if len(prefixes) == 1:
        return f"holds a Megatron data set; give its prefix, {prefixes[0]}"
    if prefixes:
        return f"holds {len(prefixes)} Megatron data sets; give the prefix of one, such as {prefixes[0]}"
    if any(folder.rglob("*.arrow")):
        return "a data set of Arrow files; write it as parquet (Dataset.to_parquet) and give that folder"
    return "no parquet files here; give a data set's folder, or a Megatron prefix"


def _training_split(folder: Path, paths: Sequence[Path]) -> tuple[Path, ...]:
    """The files without those of other splits than `train`, by their names; all if there is no such split."""
    names = {path: path.relative_to(folder).as_posix() for path in paths}
    held = set(heldout_files([*names.values()], folders=None))
    if held:
        others = sorted({split_of(name) or HELDOUT for name in held})
        warn(
            f"{folder}: {len(held)} files of other splits than train are left out ({', '.join(others)}); to "
            "import one, give its path"
        )
    return tuple(path for path, name in names.items() if name not in held)


def _prefix(source: Path) -> Path:
    return source.with_suffix("") if source.suffix in (".bin", ".idx") else source


def _check_encoded_by(stored: Path, tokenizer: str) -> None:
    """InputError for a tokenizer with other tokens than the one stored with the data set."""
    if holds_tokenizer(stored) and not same_vocabulary(stored, local_tokenizer(tokenizer)):
        raise InputError(f"{tokenizer}: has other tokens than {stored}, which encoded these; give that one")


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
    order = {"order": GIVEN, "documents": documents}
    stages["order"] = build_artifact(out / "order", order, {}, partial(_write_given_order, documents))
    stages["instances"] = write_instances(out / "instances", stages["tokens"], stages["order"], length)
    return stages


def _write_tokens(files: TokenFiles, tokenizer: Artifact, folder: Path) -> dict[str, Any]:
    """Write the files of a `tokens` artifact; returns its counts."""
    names, lengths_N, domains_N, ends = _copy_tokens(files, tokenizer, folder / TOKEN_FILE)
    if not lengths_N.any():
        raise InputError(f"{files.source}: holds no tokens; check the path")
    held_N = lengths_N > 0
    empty = len(held_N) - int(held_N.sum())
    lengths_N = lengths_N[held_N]
    ordered, domains_N = _in_alphabetical_order(names, domains_N[held_N])
    sizes_N = _text_sizes(folder / TOKEN_FILE, lengths_N, tokenizer)
    write_document_arrays(folder, lengths_N, domains_N, sizes_N)
    _warn_without_ends(files.source, len(lengths_N), ends, tokenizer.counts["eos_token_id"])
    return {
        "documents": len(lengths_N),
        "empty": empty,
        "tokens": int(lengths_N.sum()),
        "eos_tokens": ends,
        "dtype": id_dtype(tokenizer).name,
        "vocab_size": tokenizer.counts["vocab_size"],
        "eos_token_id": tokenizer.counts["eos_token_id"],
        "domains": ordered,
    }


def _copy_tokens(
    files: TokenFiles, tokenizer: Artifact, path: Path
) -> tuple[list[str], NDArray[np.int64], NDArray[np.uint16], int]:
    """Write all tokens into one file.

    Returns the names of domains, each document's length, which may be 0, and domain, and the number of EOS
    tokens.
    """
    vocab_size, eos_token_id = tokenizer.counts["vocab_size"], tokenizer.counts["eos_token_id"]
    dtype = id_dtype(tokenizer)
    names: dict[str, int] = {}
    lengths, domains = array("q"), array("H")
    previous: int | None = None
    longest = ends = 0
    with open(path, "wb") as file, progress("tokens") as advance:
        for block in files.blocks():
            _check_ids(block.tokens_T, vocab_size, files.source)
            ends += int(np.count_nonzero(block.tokens_T == eos_token_id))
            file.write(block.tokens_T.astype(dtype).tobytes())
            indices = [names.setdefault(name, len(names)) for name in block.domains_P]
            limit_domains(len(names), files.source)
            for number, length, domain in zip(block.documents_P, block.lengths_P, indices, strict=True):
                if number is None or number != previous:
                    lengths.append(length)
                    domains.append(domain)
                    longest = length
                else:
                    lengths[-1] += length
                    if length > longest:  # pieces disagree where only the domains of rows are known
                        domains[-1], longest = domain, length
                previous = number
            advance(len(indices))
    return list(names), np.asarray(lengths), np.asarray(domains), ends


def _in_alphabetical_order(
    names: Sequence[str], domains_N: NDArray[np.uint16]
) -> tuple[list[str], NDArray[np.uint16]]:
    """The names that documents have, as `prepare` numbers them so that corpora can be joined, and each
    document's, (N,).
    """
    used = np.unique(domains_N).tolist()
    places = np.zeros(len(names), np.uint16)
    by_name = sorted(used, key=names.__getitem__)
    places[by_name] = np.arange(len(by_name))
    return [names[i] for i in by_name], places[domains_N]


def _warn_without_ends(source: Path, documents: int, ends: int, eos_token_id: int) -> None:
    """Warn of documents that are not ended; those that were cut into rows still hold EOS here and there."""
    if ends * ROWS_PER_EOS < documents:
        warn(
            f"{source}: {ends:,} EOS tokens in {documents:,} documents, so a model cannot learn where a text "
            f"ends, and documents run together; end each with the id {eos_token_id}"
        )


def _text_sizes(path: Path, lengths_N: NDArray[np.int64], tokenizer: Artifact) -> NDArray[np.int64]:
    """UTF-8 bytes of the text of each document in a file of tokens, (N,); none is empty.

    Documents are decoded whole, since a piece may begin within a character; only those of more than
    DECODED_TOKENS are decoded in parts, to save memory.
    """
    decode = read_tokenizer(tokenizer.folder).backend_tokenizer.decode_batch
    ends_N = np.cumsum(lengths_N)
    starts_N = ends_N - lengths_N
    long_N = np.flatnonzero(lengths_N > DECODED_TOKENS)
    within = [np.arange(starts_N[i], ends_N[i], DECODED_TOKENS) for i in long_N]
    starts_P = np.unique(np.concatenate([starts_N, *within]))
    bounds_P = np.append(starts_P, ends_N[-1])
    sizes = array("q")
    with open(path, "rb") as file, progress("text sizes", len(starts_P)) as advance:
        for first, last in _groups(bounds_P, DECODED_TOKENS):
            inner = bounds_P[first + 1 : last] - bounds_P[first]
            tokens_T = np.fromfile(file, id_dtype(tokenizer), bounds_P[last] - bounds_P[first])
            ids = [part.tolist() for part in np.split(tokens_T, inner)]
            sizes.extend(len(text.encode()) for text in decode(ids, skip_special_tokens=True))
            advance(last - first)
    sizes_N = np.zeros_like(lengths_N)
    np.add.at(sizes_N, np.searchsorted(starts_N, starts_P, side="right") - 1, sizes)
    return sizes_N


def _groups(bounds: NDArray[np.integer], size: int) -> Iterator[tuple[int, int]]:
    """Ranges [first, last) of what lies between bounds, each of about `size` tokens."""
    cuts = np.flatnonzero(np.diff(bounds[:-1] // size)) + 1
    return pairwise([0, *cuts.tolist(), len(bounds) - 1])


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
    for first, last in _groups(offsets, BLOCK_TOKENS):
        lengths = np.diff(offsets[first : last + 1]).tolist()
        tokens_T = np.asarray(tokens[offsets[first] : offsets[last]])
        yield TokenBlock(tokens_T, lengths, [prefix.name] * len(lengths), [None] * len(lengths))
