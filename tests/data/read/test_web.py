"""Web archives: pages, other records and damage."""

import gzip
from pathlib import Path

import pytest
import zstandard

from data.read.reads import read
from hostile.files import warc
from loriini.common.errors import InputError
from loriini.data.read import web
from loriini.data.read.document import Document
from loriini.data.read.records import TOO_LONG, Dropped

PARAGRAPH = "Every parrot of the family drinks nectar, and its tongue is shaped like a brush for that. "
PAGE = f"""<html><head><title>Lories</title><script>var x = 1</script></head>
<body><nav><a href="/">Home</a></nav><article><h1>Café</h1><p>{PARAGRAPH * 3}</p></article></body></html>"""


def frame(kind: str, number: int, content: bytes, **headers: str) -> bytes:
    """A record of a web archive."""
    named = {"WARC-Record-ID": f"<urn:{number}>", "WARC-Target-URI": f"http://lory.example/{number}"}
    return warc(kind, content, **{**named, **headers})


def response(
    number: int, content: bytes, kind: str = "text/html", status: str = "200 OK", more: str = ""
) -> bytes:
    http = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}\r\n".encode()
    return frame("response", number, http + content, **{"Content-Type": "application/http; msgtype=response"})


def in_chunks(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)


LATIN = in_chunks(gzip.compress(PAGE.encode("latin-1")))
SENT = "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"
RECORDS = [
    frame("warcinfo", 0, b"software: test\r\n"),
    response(1, PAGE.encode()),
    response(2, LATIN, "text/html; charset=ISO-8859-1", more=SENT),
    response(3, b"\x89PNG", "image/png"),
    response(4, PAGE.encode(), status="404"),
    response(5, b"<html><body></body></html>"),
    response(6, b"plain words", "text/plain"),
    frame("resource", 7, b"\x89PNG", **{"Content-Type": "image/png"}),
]
PACK = {
    "a.warc": b"".join,
    "a.warc.gz": lambda records: b"".join(map(gzip.compress, records)),
    "a.warc.zst": lambda records: b"".join(map(zstandard.compress, records)),
}


@pytest.mark.parametrize("name", PACK)
def test_pages_are_documents_and_other_records_are_dropped(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(PACK[name](RECORDS))
    dropped: list[Dropped] = []
    first, second, plain = read(path, dropped.append)
    assert first == Document("<urn:1>", f"Café\n{PARAGRAPH * 3}".strip(), "a")
    assert second == Document("<urn:2>", first.text, "a")
    assert plain == Document("<urn:6>", "plain words", "a")
    assert dropped == [
        Dropped(None, f"{path}:4", "neither HTML nor plain text", "image/png"),
        Dropped(None, f"{path}:5", "page with another status than 200", "404"),
        Dropped(None, f"{path}:6", "no text in the page"),
        Dropped(None, f"{path}:8", "neither HTML nor plain text", "image/png"),
    ]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (response(1, b" \n", "text/plain"), "no text in the page"),
        (response(1, b"caf\xe9", "text/plain"), "text that is not UTF-8"),
        (frame("response", 1, b"", **{"WARC-Target-URI": "dns:lory.example"}), "no HTTP response"),
        (frame("conversion", 1, b"caf\xe9", **{"Content-Type": "text/plain"}), "text that is not UTF-8"),
    ],
)
def test_records_that_are_no_pages_or_have_no_text_are_no_errors(
    record: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(record + RECORDS[6])
    dropped: list[Dropped] = []
    assert [document.text for document in read(path, dropped.append)] == ["plain words"]
    assert [(d.where, d.reason) for d in dropped] == [(f"{path}:1", reason)]


def test_a_record_without_a_type_is_read_where_it_is_text(tmp_path: Path) -> None:
    contents = [PAGE.encode(), b"\xef\xbb\xbf\r\n" + PAGE.encode(), "plain café".encode(), b"\x89PNG\x00"]
    untyped = [
        frame("response", i, b"HTTP/1.1 200 OK\r\n\r\n" + content) for i, content in enumerate(contents)
    ]
    resources = [frame("resource", i, content) for i, content in enumerate(contents, len(contents))]
    path = tmp_path / "a.warc"
    path.write_bytes(b"".join(untyped + resources))
    dropped: list[Dropped] = []
    page = f"Café\n{PARAGRAPH * 3}".strip()
    assert [d.text for d in read(path, dropped.append)] == [page, page, "plain café"] * 2
    assert [d.reason for d in dropped] == ["text that is not UTF-8"] * 2


@pytest.mark.parametrize("kind", ["metadata", "response"])
def test_a_record_above_the_size_limit_is_skipped(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "MAX_RECORD_BYTES", 1000)
    monkeypatch.setattr(web, "READ_BYTES", 300)
    path = tmp_path / "a.warc"
    small = response(1, b"plain words", "text/plain")
    large = b"x" * 1001
    record = frame(kind, 2, large) if kind == "metadata" else response(2, large, "text/plain")
    path.write_bytes(small + record + small)
    dropped: list[Dropped] = []
    assert [d.text for d in read(path, dropped.append)] == ["plain words"] * 2
    expected = Dropped(None, f"{path}:2", TOO_LONG, "a record of the web archive")
    assert dropped == ([expected] if kind == "response" else [])


def test_damage_is_reported_with_the_record_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(RECORDS[1] + frame("metadata", 2, b"x") + b"no record")
    with pytest.raises(InputError, match=r"a\.warc:3: damaged web archive"):
        read(path)
    for limit in (10_000, 1000):
        monkeypatch.setattr(web, "MAX_RECORD_BYTES", limit)
        path.write_bytes(RECORDS[0] + frame("metadata", 1, b"x" * 2000)[:-10])
        with pytest.raises(InputError, match=r"a\.warc:3: truncated or damaged file \(the file ends"):
            read(path)


@pytest.mark.parametrize("name", PACK)
def test_a_truncated_archive(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(PACK[name](RECORDS)[:-100])
    with pytest.raises(InputError, match="damaged"):
        read(path)
    dropped: list[Dropped] = []
    path.write_bytes(PACK[name](RECORDS * 12)[:-100])
    read_ids = [document.id for document in read(path, dropped.append, on_error="skip")]
    assert read_ids[:2] == ["<urn:1>", "<urn:2>"]
    assert "damaged" in dropped[-1].reason


@pytest.mark.parametrize(
    "data", [b"plain text", b"WARC/1.0\r\nWARC-Type: response\r\n\r\n", b"WARC/1.0\r\nContent-Le"]
)
def test_a_file_that_is_no_archive(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.warc: damaged web archive .*fix the file"):
        read(path)


def test_a_missing_package_is_reported_with_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(b"".join(RECORDS))

    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(web, "import_module", absent)
    with pytest.raises(InputError, match=r"a\.warc: .* warcio .*: pip install 'loriini\[inputs\]'"):
        read(path)
