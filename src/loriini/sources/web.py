"""The records of web archives: the text of every page (WARC), or text that was taken from pages (WET).

The frames are read here, because warcio takes a damaged archive for a whole one and passes over what it
cannot parse. What a page was sent in (chunks, compression) is undone by warcio, and trafilatura finds the
text in its HTML.
"""

import io
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import IO

from loriini.sources.compressed import READ_BYTES, open_stream
from loriini.sources.fields import MAX_RECORD_BYTES, BadRecord, Fields, import_optional
from loriini.sources.records import Records

Headers = Mapping[str, str]

WARC_HEAD = "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http:\r\nContent-Length: {}\r\n\r\n"
"""What warcio wants before a response; the address only has to be one of HTTP."""

HTML = ("text/html", "application/xhtml+xml")


def read_warc(path: str, fields: Fields) -> Records:
    """The pages of a web archive, by their WARC-Record-ID. What holds no page of text is dropped and counted.

    InputError when warcio or trafilatura is not installed.
    """
    import_optional("warcio", path), import_optional("trafilatura", path)
    # It logs what it cannot parse; that is counted here.
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    with open_stream(path) as stream:
        for number, (headers, content) in enumerate(_frames(stream), 1):
            yield number, _record(headers, content, fields)


def _record(
    headers: Headers, content: bytes | None, fields: Fields
) -> Mapping[str, str | None] | BadRecord | None:
    take = TEXT_OF.get(headers.get("warc-type", ""))
    if not take:
        return None
    if content is None:
        return BadRecord("longer than 1 GiB", "a record of the web archive", mend=None)  # a film, not a page
    try:
        return {fields.text: take(headers, content), fields.id: headers.get("warc-record-id")}
    except BadRecord as flaw:
        return flaw


def _frames(stream: IO[bytes]) -> Iterator[tuple[Headers, bytes | None]]:
    """Every record's headers, by lower-case name, and content; Flaw where the archive is damaged.

    The content is None when it is longer than 1 GiB.
    """
    while first := stream.readline(MAX_RECORD_BYTES):
        if not first.strip():
            continue
        if not first.startswith(b"WARC/"):
            raise BadRecord("damaged web archive", "a record does not begin with WARC/", mend="file")
        lines = [stream.readline(MAX_RECORD_BYTES)]
        while lines[-1].strip():
            lines.append(stream.readline(MAX_RECORD_BYTES))
        pairs = (line.decode(errors="replace").partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = headers.get("content-length", "")
        if not lines[-1] or not length.isdecimal():
            raise BadRecord("damaged web archive", "a record has no length", mend="file")
        yield headers, _content(stream, int(length))


def _content(stream: IO[bytes], length: int) -> bytes | None:
    """So many bytes; when these are too many, they are passed over."""
    content = None
    missing = length
    if length <= MAX_RECORD_BYTES:
        content = stream.read(length)
        missing -= len(content)
    while missing:
        passed = len(stream.read(min(missing, READ_BYTES)))
        if not passed:
            raise EOFError("the file ends inside a record")
        missing -= passed
    return content


def _text_of_response(headers: Headers, content: bytes) -> str:
    """The text of a page as a server sent it; Flaw when it has none."""
    status, kind, body = _http(content)
    if status != "200":
        raise BadRecord("page with another status than 200", status, mend=None)
    return _text(headers, kind, body)


def _text_of_resource(headers: Headers, content: bytes) -> str:
    """The text of a page that came by itself, as from a file; Flaw when it is none."""
    return _text(headers, headers.get("content-type", ""), content)


def _text(headers: Headers, kind: str, content: bytes) -> str:
    kind = headers.get("warc-identified-payload-type", kind).split(";")[0].strip().lower()
    if kind == "text/plain":
        return _text_of_conversion(headers, content)
    if kind not in HTML:
        raise BadRecord("neither HTML nor plain text", kind, mend=None)
    return _text_of_html(content)


def _text_of_conversion(headers: Headers, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadRecord("not valid UTF-8", f"byte {error.start}") from None


def _text_of_html(html: bytes) -> str:
    from trafilatura import extract

    try:
        text = extract(html, include_comments=False)
    except Exception as error:  # whatever a parser meets in pages of any kind
        raise BadRecord("page that cannot be parsed", error, mend=None) from None
    if not text:
        raise BadRecord("no text in the page", mend=None)
    return text


def _http(content: bytes) -> tuple[str, str, bytes]:
    """Status, content type and body of a response, unpacked."""
    from warcio.archiveiterator import ArchiveIterator

    if not content.startswith(b"HTTP/"):
        raise BadRecord("no HTTP response")
    head = WARC_HEAD.format(len(content)).encode()
    try:
        record = next(ArchiveIterator(io.BytesIO(head + content + b"\r\n\r\n")))
        kind = record.http_headers.get_header("Content-Type", "")
        return record.http_headers.get_statuscode(), kind, record.content_stream().read()
    except Exception as error:  # whatever it meets in bytes of any kind
        raise BadRecord("response that cannot be parsed", error) from None


TEXT_OF: dict[str, Callable[[Headers, bytes], str]] = {
    "response": _text_of_response,
    "resource": _text_of_resource,
    "conversion": _text_of_conversion,
}
"""By the type of record; the others (requests, metadata, ...) hold no documents."""
