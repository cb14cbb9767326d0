"""Readers of web archives: the text of HTML pages (WARC), or text extracted from pages (WET).

warcio parses records and responses; trafilatura decodes pages and extracts their text.
"""

import logging
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import IO, Any

from loriini.common.errors import InputError
from loriini.data.read.compressed import READ_BYTES, open_stream
from loriini.data.read.records import MAX_RECORD_BYTES, TOO_LONG, BadRecord, Fields, Records

HEADER_BYTES, PAGE_BYTES = 1 << 20, 1 << 23
"""The longest first line of a record, and the longest page, unpacked: parsing takes many times its size."""
HTML = ("text/html", "application/xhtml+xml")


def read_warc(path: str, fields: Fields) -> Records:
    """The pages of a web archive, with their WARC-Record-ID as id. Records without text are dropped.

    InputError when warcio or trafilatura is not installed; BadRecord or EOFError where the archive is
    damaged.
    """
    for module in ("warcio", "trafilatura"):
        try:
            import_module(module)
        except ImportError as error:
            needs = f"reading this needs {module} ({str(error).splitlines()[0]})"
            raise InputError(f"{path}: {needs}; run: pip install 'loriini[inputs]'") from None
        logging.getLogger(module).setLevel(logging.CRITICAL)  # pages that cannot be parsed are counted
    with open_stream(path) as stream:
        for number, record in enumerate(_records(stream), 1):
            yield number, _page_of(record, fields)


def _records(stream: IO[bytes]) -> Iterator[Any]:
    """Every record, as warcio parses it; what the caller does not read of it is skipped."""
    from warcio.exceptions import ArchiveLoadFailed
    from warcio.recordloader import ArcWarcRecordLoader

    loader = ArcWarcRecordLoader(verify_http=False, arc2warc=False)
    while first := stream.readline(HEADER_BYTES):
        if not first.strip():
            continue
        try:
            record = loader.parse_record_stream(stream, first, "warc")
        except (ArchiveLoadFailed, EOFError, AttributeError) as error:
            # AttributeError: a response without WARC-Target-URI
            raise BadRecord("damaged web archive", error, "file") from None
        if record.length is None:
            raise BadRecord("damaged web archive", "a record has no length", "file")
        yield record
        while record.raw_stream.read(READ_BYTES):
            pass
        if record.raw_stream.limit:
            raise EOFError("the file ends inside a record")


def _page_of(record: Any, fields: Fields) -> Mapping[str, str | None] | BadRecord | None:
    if record.rec_type not in ("response", "resource", "conversion"):
        return None  # requests, metadata, …
    try:
        text = _text_of(record)
    except BadRecord as bad:
        return bad
    if not text.strip():
        return BadRecord("no text in the page", fix=None)
    return {fields.text: text, fields.id: record.rec_headers.get_header("WARC-Record-ID")}


def _text_of(record: Any) -> str:
    """A record's text: of a page from a server or a file (resource), or already extracted (conversion)."""
    kind = record.rec_headers.get_header("Content-Type", "")
    if record.rec_type == "response":
        if record.http_headers is None:
            raise BadRecord("no HTTP response", fix=None)
        if (status := record.http_headers.get_statuscode()) != "200":
            raise BadRecord("page with another status than 200", status, fix=None)
        kind = record.http_headers.get_header("Content-Type", "")
    kind = record.rec_headers.get_header("WARC-Identified-Payload-Type", kind)
    form = "text/plain" if record.rec_type == "conversion" else kind.split(";")[0].strip().lower()
    if form not in (*HTML, "text/plain", ""):
        raise BadRecord("neither HTML nor plain text", form, fix=None)
    content = _content_of(record)
    if not form:
        form = "text/html" if content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") else "text/plain"
    if form in HTML:
        return _text_of_html(content)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise BadRecord("text that is not UTF-8", fix=None) from None


def _content_of(record: Any) -> bytes:
    """A record's content, unchunked and decompressed; BadRecord above MAX_RECORD_BYTES."""
    content = bytearray()
    try:
        stream = record.content_stream()
        while block := stream.read(READ_BYTES):
            content += block
            if len(content) > MAX_RECORD_BYTES:
                raise BadRecord(TOO_LONG, "a record of the web archive", fix=None)  # a video, not a page
    except BadRecord:
        raise
    except Exception as error:  # responses can be anything, and so can warcio's errors
        raise BadRecord("response that cannot be parsed", error, fix=None) from None
    return bytes(content)


def _text_of_html(html: bytes) -> str:
    from trafilatura import extract

    if len(html) > PAGE_BYTES:
        raise BadRecord(f"page of more than {PAGE_BYTES >> 20} MiB", fix=None)
    try:
        return extract(html, include_comments=False) or ""
    except Exception as error:  # pages can be anything, and so can the parser's errors
        raise BadRecord("page that cannot be parsed", error, fix=None) from None
