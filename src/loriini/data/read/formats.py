"""Readers of file formats, by file name."""

import codecs
import io
import json
from collections.abc import Callable
from itertools import islice

from loriini.data.read.compressed import COMPRESSED, DAMAGE, open_stream, suffixes
from loriini.data.read.files import is_remote, is_special
from loriini.data.read.readers import (
    check_first_bytes,
    parse_object,
    read_arrow,
    read_csv,
    read_json_lines,
    read_parquet,
    read_tsv,
)
from loriini.data.read.records import (
    MAX_RECORD_BYTES,
    ONE_LINE_A_RECORD,
    TOO_LONG,
    BadRecord,
    Fields,
    Records,
)
from loriini.data.read.web import read_warc

HEAD_BYTES = 4096
"""Bytes in which `begins_as_text` looks."""
UNREADABLE_ARCHIVES = (
    ".bz2",
    ".xz",
    ".lzma",
    ".lz",
    ".lz4",
    ".lzo",
    ".br",
    ".sz",
    ".snappy",
    ".z",
    ".gzip",
    ".zstd",
    ".zip",
    ".7z",
    ".rar",
    ".tar",
    ".tgz",
    ".tbz",
    ".tbz2",
    ".txz",
    ".tzst",
    *COMPRESSED,  # compressed twice
)

READERS: dict[str, Callable[[str, Fields], Records]] = {
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".jsonlines": read_json_lines,
    ".jl": read_json_lines,
    ".json": read_json_lines,
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".warc": read_warc,
    ".wet": read_warc,
}
"""By the suffix before `.gz` or `.zst`. Any other file is one document of plain text."""


def is_archive(path: str) -> bool:
    """Whether a file is an archive or compressed in a way that is not read."""
    return suffixes(path)[0] in UNREADABLE_ARCHIVES


def reader_of(path: str, in_folder: bool) -> Callable[[str, Fields], Records] | None:
    """The reader of a file of records; None for a text file."""
    suffix, compression = suffixes(path)
    if is_archive(path):
        return _refuse_archive
    # A .json file in a folder is far more often settings than JSON lines; settings are not compressed.
    return None if in_folder and suffix == ".json" and not compression else READERS.get(suffix)


RECORD = "a JSON record"
"""What a text is called that is one record."""


def begins_as_text(path: str) -> bool:
    """Whether a file's first bytes can be those of a text, so that it is neither picture, archive nor pipe.

    Remote files are not opened, since each would take a request.
    """
    if is_archive(path) or is_special(path):
        return False
    if is_remote(path):
        return True
    try:
        with open_stream(path) as stream:
            head = stream.read(HEAD_BYTES)
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD_BYTES)
    except (OSError, UnicodeDecodeError, *DAMAGE):
        return False
    return bool(head.strip()) and b"\0" not in head


def read_text_file(path: str, fields: Fields, in_folder: bool) -> Records:
    """A whole text file as record 0. In a folder, one that is not text is dropped, unless it is JSON."""
    fix = None if in_folder else "file"
    with open_stream(path) as stream:
        content = stream.read(MAX_RECORD_BYTES + 1)
    too_long, content = len(content) > MAX_RECORD_BYTES, content.removeprefix(codecs.BOM_UTF8)
    if reason := _json_of_records(path, content, fields):
        detail = "it would be one document of plain text"
        lines = "write it on one line, as jq -c . does" if reason == RECORD else ONE_LINE_A_RECORD
        raise BadRecord(reason, detail, fix=f"file: {lines}, and let its name end in .jsonl")
    if _is_json_lines(content, fields):
        detail = "they would be one document of plain text"
        raise BadRecord("JSON lines under another name", detail, fix="file's name: let it end in .jsonl")
    if too_long:
        raise BadRecord(TOO_LONG, "a text file is one document", fix="file")
    if b"\0" in content:
        check_first_bytes(content)
        raise BadRecord("not a text file", fix=fix)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise BadRecord("not valid UTF-8", f"byte {error.start}", fix=fix) from None
    if not text.strip():
        raise BadRecord("empty text", fix=fix)
    yield 0, {fields.text: text}


def _json_of_records(path: str, content: bytes, fields: Fields) -> str:
    """What a text is called that is a JSON array of records, by its first item, or a `.json` of one record.

    A record is an object with the text field. Empty for other text.
    """
    kinds = {b"[": "a JSON array of records", **({b"{": RECORD} if path.endswith(".json") else {})}
    kind = kinds.get(content.lstrip()[:1], "")
    if not kind:
        return ""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    record = next(iter(value), None) if isinstance(value, list) else value
    return kind if isinstance(record, dict) and fields.of(record)[0] is not None else ""


def _is_json_lines(content: bytes, fields: Fields) -> bool:
    """Whether the first two lines that are not blank are JSON objects with the text field."""
    lines = list(islice(filter(bytes.strip, io.BytesIO(content)), 2))
    if len(lines) < 2 or not lines[1].lstrip().startswith(b"{"):
        return False
    try:
        return all(fields.of(parse_object(line))[0] is not None for line in lines)
    except BadRecord:
        return False


def _refuse_archive(path: str, fields: Fields) -> Records:
    raise BadRecord("packed in a way that is not read", "unpack it, or pack it as .gz or .zst", fix="file")
