"""Readers of web archives: the text of HTML pages (WARC), or text extracted from pages (WET).

warcio parses records, and undoes chunking and compression of a response; trafilatura extracts the text of its
HTML.
"""

import io
import logging
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import IO, Any

from loriini.common.errors import InputError
from loriini.data.read.compressed import READ_BYTES, open_stream
from loriini.data.read.records import MAX_RECORD_BYTES, TOO_LONG, BadRecord, Fields, Records

HEADER_BYTES, PAGE_BYTES = 1 << 20, 1 << 23
"""The longest first line of a record, and the longest page, unpacked: parsing takes many times its size."""

HTML = ("text/html", "application/xhtml+xml")
BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
"""Bytes that no text has, by the MIME Sniffing standard."""
CHARSET = re.compile(r"charset\s*=\s*[\"']?([a-z\d][\w.:-]{0,39})", re.ASCII | re.IGNORECASE)

Headers = Mapping[str, str]


def import_optional(module: str, path: str) -> Any:
    """Import a module that reading `path` needs; InputError naming the extra when it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        needs = f"reading this needs {module} ({str(error).splitlines()[0]})"
        raise InputError(f"{path}: {needs}; run: pip install 'loriini[inputs]'") from None


def read_warc(path: str, fields: Fields) -> Records:
    """The pages of a web archive, with their WARC-Record-ID as id. Records without text are dropped.

    InputError when warcio or trafilatura is not installed; BadRecord or EOFError where the archive is
    damaged.
    """
    for module in ("warcio", "trafilatura"):
        import_optional(module, path)
        logging.getLogger(module).setLevel(logging.CRITICAL)  # what cannot be parsed is counted here
    with open_stream(path) as stream:
        for number, (headers, content) in enumerate(_records(stream), 1):
            yield number, _page_of(headers, content, fields)


def _records(stream: IO[bytes]) -> Iterator[tuple[Headers, bytes | None]]:
    """The headers, by lower-case name, and the content of every record; None for one above the size limit."""
    from warcio.exceptions import ArchiveLoadFailed
    from warcio.recordloader import ArcWarcRecordLoader

    loader = ArcWarcRecordLoader()
    while first := stream.readline(HEADER_BYTES):
        if not first.strip():
            continue
        try:
            record = loader.parse_record_stream(stream, first, "warc", no_record_parse=True)
        except ArchiveLoadFailed as error:
            raise BadRecord("damaged web archive", error, "file") from None
        headers = {name.lower(): value for name, value in record.rec_headers.headers}
        if not re.fullmatch(r"\d{1,18}", headers.get("content-length", ""), re.ASCII):
            raise BadRecord("damaged web archive", "a record has no length", "file")
        content = record.raw_stream.read(record.length) if record.length <= MAX_RECORD_BYTES else None
        while record.raw_stream.read(READ_BYTES):
            pass  # the rest of a record above the size limit
        if record.raw_stream.limit:
            raise EOFError("the file ends inside a record")
        yield headers, content


def _page_of(
    headers: Headers, content: bytes | None, fields: Fields
) -> Mapping[str, str | None] | BadRecord | None:
    if headers.get("warc-type") not in ("response", "resource", "conversion"):
        return None  # requests, metadata, …
    if content is None:
        return BadRecord(TOO_LONG, "a record of the web archive", fix=None)  # a video, not a page
    try:
        text = _text_of(headers, content)
    except BadRecord as bad:
        return bad
    if not text.strip():
        return BadRecord("no text in the page", fix=None)
    return {fields.text: text, fields.id: headers.get("warc-record-id")}


def _text_of(headers: Headers, content: bytes) -> str:
    """The text of a page, as a server's response or a file (resource), or extracted already (conversion)."""
    kind = headers.get("content-type", "")
    if headers["warc-type"] == "conversion":
        return _plain(content, kind)
    if headers["warc-type"] == "response":
        status, kind, content = _http(content)
        if status != "200":
            raise BadRecord("page with another status than 200", status, fix=None)
    form = headers.get("warc-identified-payload-type", kind).split(";")[0].strip().lower()
    if not form and not BINARY.search(content):
        form = "text/html" if content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") else "text/plain"
    if form == "text/plain":
        return _plain(content, kind)
    if form not in HTML:
        raise BadRecord("neither HTML nor plain text", form, fix=None)
    return _text_of_html(content, kind)


def _decoded(content: bytes, kind: str) -> str | bytes:
    """A text in UTF-8, or by the charset that its content type names; undecoded where neither fits.

    Servers name ISO-8859-1 for pages in UTF-8, and where browsers read cp1252.
    """
    named = CHARSET.search(kind)
    charset = named[1].lower() if named else "utf-8"
    for each in ("utf-8", "cp1252" if charset == "iso-8859-1" else charset):
        try:
            return content.decode(each)
        except (UnicodeError, LookupError):  # LookupError for an unknown charset
            continue
    return content


def _plain(content: bytes, kind: str) -> str:
    """Plain text; BadRecord where it cannot be decoded."""
    text = _decoded(content, kind)
    if isinstance(text, bytes):
        raise BadRecord("text that cannot be decoded", fix=None)
    return text


def _text_of_html(html: bytes, kind: str) -> str:
    from trafilatura import extract

    if len(html) > PAGE_BYTES:
        raise BadRecord(f"page of more than {PAGE_BYTES >> 20} MiB", fix=None)
    try:
        text = extract(_decoded(html, kind), include_comments=False)
    except Exception as error:  # pages can be anything, and so can the parser's errors
        raise BadRecord("page that cannot be parsed", error, fix=None) from None
    return text or ""


def _unpacked(stream: IO[bytes]) -> bytes:
    """All of a response's body, decompressed; BadRecord above the size limit."""
    body = bytearray()
    while block := stream.read(READ_BYTES):
        body += block
        if len(body) > MAX_RECORD_BYTES:
            raise BadRecord(TOO_LONG, "a response, unpacked", fix=None)
    return bytes(body)


def _http(content: bytes) -> tuple[str, str, bytes]:
    """Status, content type and body of a response, without chunking and compression."""
    from warcio.recordloader import ArcWarcRecord
    from warcio.statusandheaders import StatusAndHeadersParser

    if not content.startswith(b"HTTP/"):
        raise BadRecord("no HTTP response", fix=None)
    stream = io.BytesIO(content)
    try:
        headers = StatusAndHeadersParser([], verify=False).parse(stream)
        response = ArcWarcRecord("warc", "response", None, stream, headers, None, None)
        body = _unpacked(response.content_stream())
        return headers.get_statuscode(), headers.get_header("Content-Type", ""), body
    except BadRecord:
        raise
    except Exception as error:  # responses can be anything, and so can warcio's errors
        raise BadRecord("response that cannot be parsed", error, fix=None) from None
