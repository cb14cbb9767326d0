"""Documents from files and folders, one format a function; every flaw names its file and line.

Reading is a stream: memory does not grow with the input.
"""

import codecs
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pyarrow
import pyarrow.parquet

from loriini.data import artifact
from loriini.data.compressed import DAMAGE, read_lines
from loriini.data.documents import Document
from loriini.errors import InputError

OnError = Literal["stop", "skip"]

LINE_SUFFIXES = tuple(
    f".{kind}{packed}" for kind in ("jsonl", "ndjson", "json") for packed in ("", ".gz", ".zst")
)


@dataclass(frozen=True)
class Fields:
    """The names of the fields (JSON) or columns (parquet) that hold each part of a document."""

    text: str = "text"
    id: str = "id"
    domain: str = "domain"


class Flaw(Exception):
    """A record that is not a document: `reason` is what is counted, `detail` what only this one shows."""

    def __init__(self, reason: str, detail: object = "") -> None:
        super().__init__(f"{reason} ({detail})" if detail else reason)
        self.reason = reason


@dataclass(frozen=True)
class Reading:
    """Which fields to read, and what a flaw does: stop with an InputError, or be counted in `skipped`."""

    fields: Fields
    on_error: OnError
    skipped: Counter[str]

    def report(self, flaw: Flaw, where: str, what: str = "line") -> None:
        """Raise InputError for `flaw` at `where`, or count it."""
        if self.on_error == "stop":
            raise InputError(
                f"{where}: {flaw}; mend the {what}, or pass --on-error skip to count it and go on"
            )
        self.skipped[flaw.reason] += 1


@dataclass(frozen=True)
class Part:
    """What one task reads: a file, and the folder it was found in when it was not given by name."""

    path: Path
    root: Path | None = None


def read_documents(
    paths: Sequence[str | Path],
    fields: Fields = Fields(),
    on_error: OnError = "stop",
    skipped: Counter[str] | None = None,
) -> Iterator[Document]:
    """Stream the documents of `paths`, in the order given.

    A path is JSON lines (`.jsonl`, plain, `.gz` or `.zst`), `.parquet`, any other text file (one document),
    or a folder of these, walked in sorted order. A missing id becomes `<file name>:<line number>`; a missing
    domain, the file's name up to its first dot. In a folder every text file that is no data file is one
    document whose id is its relative path and whose domain is its first folder; there, binary and empty files
    are counted in `skipped` and hidden ones passed over.

    Raises InputError for a missing path, for a path without any document and, with `on_error="stop"`, at the
    first flaw. With "skip" flaws are counted in `skipped` by reason, and a damaged archive yields what could
    be read of it.
    """
    reading = Reading(fields, on_error, Counter() if skipped is None else skipped)
    for path in map(Path, paths):
        found = False
        for part in parts([path]):
            for document in read_part(part, reading):
                found = True
                yield document
        if not found:
            raise InputError(
                f"{path}: no document found; give .jsonl, .jsonl.gz, .jsonl.zst, .parquet or text files"
            )


def parts(paths: Sequence[str | Path]) -> list[Part]:
    """The files behind `paths`, in order: each can be read by itself. InputError when a path is missing."""
    found = []
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; check the path")
        found += [Part(file, path) for file in _walk(path)] if path.is_dir() else [Part(path)]
    return found


def read_part(part: Part, reading: Reading) -> Iterator[Document]:
    """Stream one file's documents; flaws are reported to `reading`."""
    path, root = part.path, part.root
    # A lone .json among other files is a settings file far more often than JSON lines.
    if path.name.endswith(LINE_SUFFIXES) and not (root and path.suffix == ".json"):
        yield from _read_lines(path, reading)
    elif path.suffix == ".parquet":
        yield from _read_parquet(path, reading)
    else:
        yield from _read_text(part, reading)


def input_identity(paths: Sequence[str | Path]) -> dict[str, str]:
    """Map each path to a hash: a file's of its bytes, a folder's of its files' names, sizes and mtimes in ns.

    Raises InputError when a path is missing.
    """
    identity = {}
    for path in map(Path, paths):
        if path.is_dir():
            stats = [(p.relative_to(path).as_posix(), p.stat()) for p in _walk(path)]
            identity[str(path)] = artifact.digest(
                [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
            )
        elif path.exists():
            with open(path, "rb") as file:
                identity[str(path)] = hashlib.file_digest(file, "sha256").hexdigest()
        else:
            raise InputError(f"{path}: no such file or folder; check the path")
    return identity


def _walk(root: Path) -> list[Path]:
    """The files below `root` in sorted order, without hidden ones."""
    names = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return [root / name for name in sorted(names) if not any(part.startswith(".") for part in name.parts)]


def _read_text(part: Part, reading: Reading) -> Iterator[Document]:
    """A whole file as one document. In a folder a file that is no text is counted, whatever `on_error`."""
    path, root = part.path, part.root
    try:
        if root is None:
            yield Document(path.name, _text_of(path), _domain_of(path))
            return
        name = path.relative_to(root)
        domain = name.parts[0] if len(name.parts) > 1 else root.resolve().name
        yield Document(name.as_posix(), _text_of(path), domain)
    except Flaw as flaw:
        if root is None:
            reading.report(flaw, str(path), "file")
        else:
            reading.skipped[flaw.reason] += 1


def _read_lines(path: Path, reading: Reading) -> Iterator[Document]:
    number = 0
    try:
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                continue
            try:
                yield _to_document(_parse(line), reading.fields, path, number)
            except Flaw as flaw:
                reading.report(flaw, f"{path}:{number}")
    except DAMAGE as error:
        reading.report(Flaw("truncated or damaged archive", error), f"{path}:{number + 1}", "file")


def _read_parquet(path: Path, reading: Reading) -> Iterator[Document]:
    numbers = count(1)
    try:
        for record in _parquet_records(path, reading.fields):
            number = next(numbers)
            try:
                yield _to_document(record, reading.fields, path, number)
            except Flaw as flaw:
                reading.report(flaw, f"{path}:{number}", "row")
    except Flaw as flaw:
        reading.report(flaw, str(path), "file or name its text field")
    except (pyarrow.ArrowException, OSError) as error:
        reading.report(Flaw("unreadable parquet", error), f"{path}:{next(numbers)}", "file")


def _parquet_records(path: Path, fields: Fields) -> Iterator[dict[str, Any]]:
    """The rows of a parquet file, only the columns needed; Flaw when the text column is absent."""
    with pyarrow.parquet.ParquetFile(path) as file:
        present = file.schema_arrow.names
        if fields.text not in present:
            raise Flaw("no text column", f"{fields.text!r} is not among {', '.join(present)}")
        columns = [name for name in asdict(fields).values() if name in present]
        for batch in file.iter_batches(batch_size=256, columns=columns):
            yield from batch.to_pylist()


def _parse(line: bytes) -> dict[str, Any]:
    """A line's JSON object; Flaw when it is none."""
    try:
        value = json.loads(line.removeprefix(codecs.BOM_UTF8).decode())
    except UnicodeDecodeError as error:
        raise Flaw("not valid UTF-8", f"byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise Flaw("not valid JSON", error) from None
    if not isinstance(value, dict):
        raise Flaw("not a JSON object", f"a {type(value).__name__}")
    return value


def _to_document(record: Mapping[str, Any], fields: Fields, path: Path, number: int) -> Document:
    """The document that record `number` of a file holds; Flaw when it holds none."""
    text, name, domain = (record.get(field) for field in (fields.text, fields.id, fields.domain))
    if text is None:
        raise Flaw("no text", f"field {fields.text!r} is absent or null")
    if not isinstance(text, str):
        raise Flaw("text is not a string", f"field {fields.text!r} holds a {type(text).__name__}")
    if not text.strip():
        raise Flaw("empty text", f"field {fields.text!r}")
    document = Document(
        id=f"{path.name}:{number}" if name is None else str(name),
        text=text,
        domain=_domain_of(path) if domain is None else str(domain),
    )
    try:
        f"{document.id}{text}{document.domain}".encode()
    except UnicodeEncodeError:
        raise Flaw("not valid Unicode", "half a surrogate pair") from None
    return document


def _text_of(path: Path) -> str:
    """The whole of a text file; Flaw when it is binary or empty."""
    try:
        text = path.read_bytes().removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise Flaw("not a text file")
    if not text.strip():
        raise Flaw("empty text")
    return text


def _domain_of(path: Path) -> str:
    return path.name.split(".", 1)[0]
