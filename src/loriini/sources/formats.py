"""Which format a file's name tells."""

import codecs
from collections.abc import Callable

from loriini.sources.compressed import PACKED, open_stream, suffixes
from loriini.sources.fields import MAX_RECORD_BYTES, BadRecord, Fields
from loriini.sources.records import (
    Records,
    read_arrow,
    read_csv,
    read_json_lines,
    read_parquet,
    read_tsv,
)
from loriini.sources.web import read_warc

PACKED_OTHERWISE = (
    *(".bz2", ".xz", ".lzma", ".lz", ".lz4", ".lzo", ".br", ".sz", ".snappy", ".z", ".gzip", ".zstd"),
    *(".zip", ".7z", ".rar", ".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst"),
    *PACKED,  # a second time
)
"""Suffixes of what nothing here unpacks."""

FORMATS: dict[str, Callable[[str, Fields], Records]] = {
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json_lines,
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".warc": read_warc,
    ".wet": read_warc,
}
"""By the suffix before `.gz` or `.zst`. Any other file is one document of plain text."""


def reader_of(path: str, in_folder: bool) -> Callable[[str, Fields], Records] | None:
    """What reads a file of records; None for a text file."""
    suffix, packed = suffixes(path)
    if suffix in PACKED_OTHERWISE:
        return _packed_otherwise
    # A .json among other files is a settings file far more often than JSON lines; nobody packs settings.
    return None if in_folder and suffix == ".json" and not packed else FORMATS.get(suffix)


def read_text_file(path: str, fields: Fields, in_folder: bool) -> Records:
    """A whole file as record 0. That a folder holds other files too is no fault of the input's."""
    mend = None if in_folder else "file"
    with open_stream(path) as stream:
        content = stream.read(MAX_RECORD_BYTES + 1)
    if len(content) > MAX_RECORD_BYTES:
        raise BadRecord("longer than 1 GiB", "a text file is one document", mend="file")
    if b"\0" in content:
        raise BadRecord("not a text file", mend=mend)
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise BadRecord("not valid UTF-8", f"byte {error.start}", mend=mend) from None
    if not text.strip():
        raise BadRecord("empty text", mend=mend)
    yield 0, {fields.text: text}


def _packed_otherwise(path: str, fields: Fields) -> Records:
    raise BadRecord("packed in a way that is not read", "unpack it, or pack it as .gz or .zst", mend="file")
