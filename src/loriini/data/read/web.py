"""Readers of web archives: the text of HTML pages (WARC), or text extracted from pages (WET).

The record framing is parsed here, because warcio accepts a damaged archive and skips what it cannot parse.
warcio undoes chunking and compression of a response, and trafilatura extracts the text of its HTML.
"""

import codecs
import io
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import IO

from loriini.data.read.compressed import READ_BYTES, open_stream
from loriini.data.read.optional import import_optional
from loriini.data.read.records import MAX_RECORD_BYTES, TOO_LONG, BadRecord, Fields, Records

Headers = Mapping[str, str]

WARC_HEAD = "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http:\r\nContent-Length: {}\r\n\r\n"
"""The header that warcio needs before a response; the address only has to be an HTTP one."""

HEADER_BYTES, PAGE_BYTES = 1 << 20, 1 << 23
"""The longest header of a record, and the longest page, unpacked: parsing takes many times its size."""

HTML = ("text/html", "application/xhtml+xml")
CHARSET = re.compile(r"charset\s*=\s*[\"']?([a-z\d][\w.:-]{0,39})", re.ASCII | re.IGNORECASE)
BROWSERS = {"iso8859-1": "cp1252", "ascii": "cp1252"}
"""Charsets that browsers use instead of those that servers name."""
NO_CHARSETS = {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
"""Python's codecs that no page uses: they take quadratic time, or make half a surrogate pair."""


def read_warc(path: str, fields: Fields) -> Records:
    """The pages of a web archive, with their WARC-Record-ID as id. Records without text are dropped.

    InputError when warcio or trafilatura is not installed.
    """
    import_optional("warcio", path)
    import_optional("trafilatura", path)
    # It logs pages that it cannot parse; they are counted here.
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    with open_stream(path) as stream:
        for number, (headers, content) in enumerate(_frames(stream), 1):
            yield number, _record(headers, content, fields)


def _record(
    headers: Headers, content: bytes | None, fields: Fields
) -> Mapping[str, str | None] | BadRecord | None:
    extract = TEXT_OF.get(headers.get("warc-type", ""))
    if not extract:
        return None
    if content is None:
        return BadRecord(TOO_LONG, "a record of the web archive", fix=None)  # a video, not a page
    try:
        text = extract(headers, content)
    except BadRecord as bad:
        return bad
    if not text.strip():
        return BadRecord("no text in the page", fix=None)
    return {fields.text: text, fields.id: headers.get("warc-record-id")}


def _frames(stream: IO[bytes]) -> Iterator[tuple[Headers, bytes | None]]:
    """The headers, by lower-case name, and the content of every record; None for one above the size limit.

    Raises BadRecord where the archive is damaged.
    """
    while first := stream.readline(HEADER_BYTES):
        if not first.strip():
            continue
        if not first.startswith(b"WARC/"):
            raise BadRecord("damaged web archive", "a record does not begin with WARC/", fix="file")
        lines, left = [stream.readline(HEADER_BYTES)], HEADER_BYTES
        while lines[-1].strip():
            left -= len(lines[-1])
            if left < 0:
                raise BadRecord("damaged web archive", "a header without an end", fix="file")
            lines.append(stream.readline(HEADER_BYTES))
        pairs = (line.decode(errors="replace").partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = headers.get("content-length", "")
        if not lines[-1] or not re.fullmatch(r"\d{1,18}", length, re.ASCII):
            raise BadRecord("damaged web archive", "a record has no length", fix="file")
        yield headers, _content(stream, int(length))


def _content(stream: IO[bytes], length: int) -> bytes | None:
    """The next `length` bytes; None, with the bytes skipped, when they are above the size limit."""
    content = None
    missing = length
    if length <= MAX_RECORD_BYTES:
        content = stream.read(length)
        missing -= len(content)
    while missing:
        skipped = len(stream.read(min(missing, READ_BYTES)))
        if not skipped:
            raise EOFError("the file ends inside a record")
        missing -= skipped
    return content


def _text_of_response(headers: Headers, content: bytes) -> str:
    """The text of a server's response."""
    status, kind, body = _http(content)
    if status != "200":
        raise BadRecord("page with another status than 200", status, fix=None)
    return _text(headers, kind, body)


def _text_of_resource(headers: Headers, content: bytes) -> str:
    """The text of a page archived without an HTTP response, such as a file."""
    return _text(headers, headers.get("content-type", ""), content)


def _text_of_conversion(headers: Headers, content: bytes) -> str:
    """Text that was extracted from a page."""
    return _decoded(content, headers.get("content-type", ""))


def _text(headers: Headers, kind: str, content: bytes) -> str:
    """The text of a body with the content type `kind`; a type that the archive identified goes first."""
    form = headers.get("warc-identified-payload-type", kind).split(";")[0].strip().lower()
    if form == "text/plain":
        return _decoded(content, kind)
    if form not in HTML:
        raise BadRecord("neither HTML nor plain text", form, fix=None)
    return _text_of_html(content, kind)


def _charset(kind: str) -> str | None:
    """The charset that a content type names; None if it names none, an unknown one, or one of NO_CHARSETS."""
    named = CHARSET.search(kind)
    try:
        charset = codecs.lookup(named[1]).name if named else None
        if charset is None or charset in NO_CHARSETS:
            return None
        "".encode(charset)  # LookupError for a codec of bytes, such as bz2
        return charset
    except LookupError:
        return None


def _decoded(content: bytes, kind: str) -> str:
    """Plain text, decoded with the charset of its content type (`_charset`), by default UTF-8."""
    try:
        return content.decode(_charset(kind) or "utf-8")
    except UnicodeError as error:
        raise BadRecord("text that cannot be decoded", error, fix=None) from None


def _page(html: bytes, kind: str) -> str | bytes:
    """A page decoded by the charset that the server named; undecoded where trafilatura finds a better one.

    Servers name ISO-8859-1 for pages in UTF-8, so bytes that are valid UTF-8 are taken as UTF-8.
    """
    charset = _charset(kind)
    try:
        is_utf8 = not html.isascii() and bool(html.decode())
    except UnicodeDecodeError:
        is_utf8 = False
    try:
        return html if is_utf8 or charset is None else html.decode(BROWSERS.get(charset, charset))
    except UnicodeError:
        return html


def _text_of_html(html: bytes, kind: str) -> str:
    from trafilatura import extract

    if len(html) > PAGE_BYTES:
        raise BadRecord(f"page of more than {PAGE_BYTES >> 20} MiB", fix=None)
    try:
        text = extract(_page(html, kind), include_comments=False)
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
    """Status, content type and decoded body of a response."""
    from warcio.archiveiterator import ArchiveIterator

    if not content.startswith(b"HTTP/"):
        raise BadRecord("no HTTP response", fix=None)
    head = WARC_HEAD.format(len(content)).encode()
    try:
        record = next(ArchiveIterator(io.BytesIO(head + content + b"\r\n\r\n")))
        kind = record.http_headers.get_header("Content-Type", "")
        return record.http_headers.get_statuscode(), kind, _unpacked(record.content_stream())
    except BadRecord:
        raise
    except Exception as error:  # responses can be anything, and so can warcio's errors
        raise BadRecord("response that cannot be parsed", error, fix=None) from None


TEXT_OF: dict[str, Callable[[Headers, bytes], str]] = {
    "response": _text_of_response,
    "resource": _text_of_resource,
    "conversion": _text_of_conversion,
}
"""By record type; the others (requests, metadata, …) hold no documents."""
