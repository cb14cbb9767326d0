"""Files and folders as streams of documents, readable or not."""

import os
import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import fsspec
import pytest
from reads import ALL, COMPRESSED, EXPECTED, GOOD, RECORDS, arrow, lines, read, skipping, texts

from loriini.common.errors import InputError
from loriini.data.read import formats
from loriini.data.read.document import Document
from loriini.data.read.read import read_documents
from loriini.data.read.records import Dropped, Fields, ReadOptions


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.zst", "a.parquet", "file.arrow"])
def test_remote_files(name: str, memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe(f"/bucket/{name}", ALL[name])
    assert read("memory://bucket") == read(f"memory://bucket/{name}") == EXPECTED


def test_a_web_address_is_read_by_its_name_without_the_query(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="needs fsspec[http]")
    (tmp_path / "w.jsonl").write_bytes(lines({"text": "one"}, {"text": "two"}))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_port}"
        found = read(f"http://{host}/w.jsonl?download=true#top")
        page = read(f"http://{host}/")
        server.shutdown()
    assert found == [Document("w.jsonl:1", "one", "w"), Document("w.jsonl:2", "two", "w")]
    assert [(document.id, document.domain) for document in page] == [(host, "127")]


def test_a_folder_of_many_kinds_of_files(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name, data in {
        "b/notes.md": b"# Notes",
        "a/deep/code.py": b"x = 1",
        "top.txt": b"top",
        "a/data-00000-of-00002.jsonl": lines(RECORDS[0], {"text": "nameless"}),
        "a/settings.json": b"{\n}",
        "b/picture.png": b"\x89PNG\0\xff",
        "b/latin.txt": b"caf\xe9",
        "b/empty.txt": b"",
        ".git/config": b"hidden",
        "b/UP.JSONL.GZ": COMPRESSED[".gz"](lines(RECORDS[1])),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    dropped: list[Dropped] = []
    assert read(root, on_drop=dropped.append) == [
        EXPECTED[0],
        Document("a/data-00000-of-00002.jsonl:2", "nameless", "a"),
        Document("a/deep/code.py", "x = 1", "a"),
        Document("a/settings.json", "{\n}", "a"),
        EXPECTED[1],
        Document("b/notes.md", "# Notes", "b"),
        Document("top.txt", "top", "root"),
    ]
    assert dropped == [
        Dropped(None, f"{root}/b/empty.txt", "empty text"),
        Dropped(None, f"{root}/b/latin.txt", "not valid UTF-8", "byte 3"),
        Dropped(None, f"{root}/b/picture.png", "not a text file"),
    ]
    with pytest.raises(InputError, match=r"latin\.txt: not valid UTF-8 \(byte 3\); fix the file"):
        read(root / "b" / "latin.txt")


@pytest.mark.parametrize(
    "content",
    [
        '\ufeff[{"text": "one"}, {"text": "two"}]',
        '{\n  "text": "one"\n}\n',
        '{"text": "one", "id": 1}\n{"text": "two"}\n',
    ],
)
def test_json_records_in_a_folder_are_no_text(content: str, tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text(content)
    (tmp_path / "packed.json.gz").write_bytes(COMPRESSED[".gz"](lines({"text": "x"})))
    assert texts(tmp_path / "packed.json.gz") == texts(f"{tmp_path}/p*.json.gz") == ["x"]
    with pytest.raises(InputError, match=r"all\.json: JSON records .*; fix the file: write each record"):
        texts(tmp_path)
    for other in ('[{"body": "one"}]', "[1, 2]", "[", "[]", '{"settings": [1]}', "{"):
        (tmp_path / "all.json").write_text(other)
        assert texts(tmp_path) == [other, "x"]


@pytest.mark.parametrize("name", ["a.jsonl.bz2", "b.TAR", "d.jsonl.gz.zst"])
def test_unreadable_archives_are_bad_records(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\0")
    (tmp_path / "good.txt").write_text("good")
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(InputError, match=rf"{name}: packed in a way .*unpack it, or pack it as \.gz"):
            texts(path)
    read, dropped = skipping(tmp_path)
    assert read == ["good"]
    assert [(d.where, d.reason) for d in dropped] == [
        (f"{tmp_path}/{name}", "packed in a way that is not read")
    ]


def test_file_names_that_are_not_utf8(tmp_path: Path) -> None:
    for name in (b"caf\xe9.txt", b"caf\xe9.jsonl", b"caf\xe9/a.txt"):
        path = os.path.join(os.fsencode(tmp_path), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b'{"text": "x"}')
    assert [(d.id, d.domain) for d in read(tmp_path)] == [
        ("caf\\udce9/a.txt", "caf\\udce9"),
        ("caf\\udce9.jsonl:1", "caf\\udce9"),
        ("caf\\udce9.txt", tmp_path.name),
    ]
    named = os.fsdecode(os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt"))
    assert [d.id for d in read(named)] == ["caf\\udce9.txt"]


def test_metadata_of_a_saved_data_set_is_skipped(tmp_path: Path) -> None:
    for name, data in {
        "dataset_dict.json": b"{}",
        "train/data-00000-of-00001.arrow": arrow(),
        "train/dataset_info.json": b"{}",
        "train/state.json": b"{}",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert read(tmp_path) == EXPECTED


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_named_field_that_no_record_has_is_warned_of(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(ALL[name])
    (tmp_path / "b.txt").write_text("a text has no fields")
    for fields, warned in (
        (Fields(), []),
        (Fields(id="text", domain="id"), []),
        (Fields(domain="topik"), ["domain field 'topik'"]),
        (Fields(id="no", domain="topik"), ["id field 'no'", "domain field 'topik'"]),
    ):
        assert len(read(tmp_path, fields=fields)) == 4
        *found, last = capsys.readouterr().err.splitlines()
        assert [re.findall(r"the (\w+ field '\w+')", line)[0] for line in found] == warned
        assert last.startswith(f"warning: {tmp_path}/b.txt: next to records")


def test_dropped_records_are_counted_in_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(GOOD, b"{", b"[]", b"{"))
    assert len(list(read_documents([path, path], ReadOptions(on_error="skip")))) == 2
    assert capsys.readouterr().err == ("warning: 4 left out: not valid JSON, 2 left out: a JSON array\n")
    list(read_documents([path], ReadOptions(on_error="skip"), lambda dropped: None))
    assert not capsys.readouterr().err


def test_an_unreadable_file_among_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_bytes(lines({"text": name}))
    (tmp_path / "nothing.jsonl").symlink_to(tmp_path / "absent")
    opened = formats.read_lines

    def refuse(path: str, *limits: Any) -> Any:
        if path.endswith("b.jsonl"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *limits)

    monkeypatch.setattr(formats, "read_lines", refuse)
    with pytest.raises(InputError, match=r"b\.jsonl: unreadable file .*Permission denied.*fix the file"):
        texts(tmp_path)
    read, dropped = skipping(tmp_path)
    assert read == ["a", "c"]
    assert [(d.where, d.reason) for d in dropped] == [
        (f"{tmp_path}/b.jsonl", "unreadable file"),
        (f"{tmp_path}/nothing.jsonl", "unreadable file"),
    ]


def test_a_remote_file_that_fails_halfway(
    memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/bucket/a.jsonl", lines(GOOD, GOOD))

    class Gone(Exception):
        """As those of HTTP clients, which are no OSError."""

    def breaking(path: str, *limits: Any) -> Any:
        yield GOOD
        raise Gone("connection lost")

    monkeypatch.setattr(formats, "read_lines", breaking)
    for on_error in ("stop", "skip"):  # the file may be whole
        with pytest.raises(InputError, match=r"a\.jsonl: connection lost; check the connection"):
            read("memory://bucket/a.jsonl", on_error=on_error)
