"""Which format a file's name tells."""

import codecs
from collections.abc import Callable

from loriini.sources.compressed import PACKED, open_stream, suffixes
from loriini.sources.reading import LONGEST, Fields, Flaw
from loriini.sources.records import (
    Records,
    arrow,
    comma_separated,
    json_lines,
    parquet,
    tab_separated,
)
from loriini.sources.web import warc

PACKED_OTHERWISE = (
    *(".bz2", ".xz", ".lzma", ".lz", ".lz4", ".lzo", ".br", ".sz", ".snappy", ".z", ".gzip", ".zstd"),
    *(".zip", ".7z", ".rar", ".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst"),
    *PACKED,  # a second time
)
"""Suffixes of what nothing here unpacks."""

FORMATS: dict[str, Callable[[str, Fields], Records]] = {
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".json": json_lines,
    ".csv": comma_separated,
    ".tsv": tab_separated,
    ".parquet": parquet,
    ".arrow": arrow,
    ".warc": warc,
    ".wet": warc,
}
"""By the suffix before `.gz` or `.zst`. Any other file is one document of plain text."""


def format_of(path: str, in_folder: bool) -> Callable[[str, Fields], Records] | None:
    """What reads a file of records; None for a text file."""
    suffix, packed = suffixes(path)
    if suffix in PACKED_OTHERWISE:
        return _packed_otherwise
    # A .json among other files is a settings file far more often than JSON lines; nobody packs settings.
    return None if in_folder and suffix == ".json" and not packed else FORMATS.get(suffix)


def text_file(path: str, fields: Fields, in_folder: bool) -> Records:
    """A whole file as record 0. That a folder holds other files too is no fault of the input's."""
    mend = None if in_folder else "file"
    with open_stream(path) as stream:
        content = stream.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise Flaw("longer than 1 GiB", "a text file is one document", mend="file")
    if b"\0" in content:
        raise Flaw("not a text file", mend=mend)
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise Flaw("not valid UTF-8", f"byte {error.start}", mend=mend) from None
    if not text.strip():
        raise Flaw("empty text", mend=mend)
    yield 0, {fields.text: text}


def _packed_otherwise(path: str, fields: Fields) -> Records:
    raise Flaw("packed in a way that is not read", "unpack it, or pack it as .gz or .zst", mend="file")
