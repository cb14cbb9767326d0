import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from loriini.common.errors import InputError
from loriini.data.read import inputs
from loriini.data.read.inputs import (
    InputFile,
    absolute_input,
    check_inputs,
    input_files,
    input_identity,
    parse_input,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "a/b.jsonl": (None, "a/b.jsonl"),
        "wiki=a/b.jsonl": ("wiki", "a/b.jsonl"),
        "file:///a/b": (None, "/a/b"),
        "a/b=c": (None, "a/b=c"),
        "https://x.org/a.jsonl?key=1": (None, "https://x.org/a.jsonl?key=1"),
        "web=s3://bucket/a*.parquet": ("web", "s3://bucket/a*.parquet"),
        "web=~/a.jsonl": ("web", str(Path.home() / "a.jsonl")),
    }.items(),
)
def test_parse_name_and_path(text: str, expected: tuple[str | None, str]) -> None:
    assert parse_input(text) == expected


def test_what_exists_is_a_path_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the folders that Hive and Spark write; files outside of them are not read."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "lang=en.jsonl", "date=1/a.jsonl", "date=2/a.jsonl", "two/a.jsonl", "s3/x")
    for path in ("lang=en.jsonl", "date=*/a.jsonl"):
        assert parse_input(path) == (None, path)
        assert parse_input(f"web={path}") == ("web", path)
    assert parse_input("all=*/a.jsonl") == ("all", "*/a.jsonl")
    assert parse_input("s3://bucket/a.jsonl") == (None, "s3://bucket/a.jsonl")
    found = input_files(["date=*/a.jsonl"])
    assert [(file.path, file.domain) for file in found] == [(f"date={i}/a.jsonl", "a") for i in (1, 2)]


def write(folder: Path, *names: str, content: str = "x") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def test_input_files_are_picklable(tmp_path: Path) -> None:
    write(tmp_path, "deep/b.txt", "a.jsonl.gz")
    found = input_files([f"web={tmp_path}", tmp_path / "deep" / "b.txt"])
    assert [replace(file, state={}) for file in found] == [
        InputFile(f"{tmp_path}/a.jsonl.gz", "a.jsonl.gz", "web", in_folder=True),
        InputFile(f"{tmp_path}/deep/b.txt", "deep/b.txt", "web", in_folder=True),
        InputFile(f"{tmp_path}/deep/b.txt", "b.txt", "b"),
    ]
    assert [file.size for file in found] == [1, 1, 1]
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("end", ["", "/", "//"])
def test_slashes_at_a_folders_end_change_nothing(end: str, tmp_path: Path) -> None:
    write(tmp_path, "deep/b.txt", "a.txt")
    found = [(file.name, file.domain) for file in input_files([f"{tmp_path}{end}"])]
    assert found == [("a.txt", tmp_path.name), ("deep/b.txt", "deep")]


@pytest.mark.parametrize("limit", [1 << 30, 0])
def test_identity_shows_which_file_changed(
    tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "HASHED_BYTES", limit)
    write(tmp_path, "a.txt", "b.txt")
    (tmp_path / "nothing").symlink_to(tmp_path / "absent")
    before = input_identity([tmp_path])
    assert input_identity([f"web={tmp_path}"]) == before
    a, b, *_ = before.values()
    assert (a == b) == bool(limit)  # by bytes
    write(tmp_path, "b.txt", "c.txt", content="new")
    (tmp_path / "nothing").unlink()
    after = input_identity([tmp_path])
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed == {f"{tmp_path}/{name}" for name in ("b.txt", "c.txt", "nothing")}


def test_identity_of_a_remote_file(memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe("/bucket/a.txt", b"one")
    before = input_identity(["memory://bucket"])
    assert list(before) == ["memory:///bucket/a.txt"]
    assert input_identity(["memory://bucket"]) == before
    memory.pipe("/bucket/a.txt", b"two")
    assert input_identity(["memory://bucket"]) != before


def test_a_file_in_folders_that_match_is_read_once(tmp_path: Path, memory: fsspec.AbstractFileSystem) -> None:
    write(tmp_path, "data/a.txt", "data/x/b.txt", "data/x/y/c.txt", "data/xy/d.txt")
    assert input_files([f"{tmp_path}/data/**"]) == input_files([f"{tmp_path}/data/"])
    found = [file.name for file in input_files([f"{tmp_path}/data/**/*"])]
    assert found == ["a.txt", "b.txt", "y/c.txt", "d.txt"]
    memory.pipe({"/data/x/b.txt": b"x", "/data/x/y/c.txt": b"x", "/data/a.txt": b"x", "/c.txt": b"x"})
    for pattern in ("memory://data/**", "memory://d*"):
        found = [file.path for file in input_files([pattern])]
        assert found == [f"memory:///data/{name}" for name in ("a.txt", "x/b.txt", "x/y/c.txt")]


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (("manifest.json", "instances/manifest.json"), "a prepared corpus"),
        (("run.json", "metrics.jsonl"), "the folder of a run"),
        (("config.json", "model.safetensors"), "the folder of a model"),
    ],
)
def test_a_folder_of_our_own_is_no_text(names: tuple[str, ...], what: str, tmp_path: Path) -> None:
    write(tmp_path / "out", *names)
    for given in ("out", "o*"):
        with pytest.raises(InputError, match=f"/out: {what}, not documents"):
            input_files([f"{tmp_path}/{given}"])


@pytest.mark.parametrize("look", [input_files, input_identity])
def test_what_cannot_be_read_is_refused(tmp_path: Path, look: Callable) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    for given, reason in {
        "absent.jsonl": "no such file",
        "x*.json": "no file matches the pattern",
        "two\nlines.jsonl": r"two\\nlines\.jsonl: no such file",
        "pipe": "neither a file nor a folder",
        "empty": "no document found",
    }.items():
        with pytest.raises(InputError, match=reason):
            look([tmp_path / given])
    with pytest.raises(InputError, match="an input is empty"):
        look([""])


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "b.jsonl": "{here}/b.jsonl",
        "link.jsonl": "{here}/link.jsonl",
        "wiki=a/*.jsonl": "wiki={here}/a/*.jsonl",
        "wiki=strange=a": "wiki={here}/strange=a",
        "strange=a": "{here}/strange=a",
        "file:///a/b": "/a/b",
        "web=s3://bucket/a*.parquet": "web=s3://bucket/a*.parquet",
    }.items(),
)
def test_only_the_path_of_a_local_input_is_made_absolute(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strange=a").touch()
    (tmp_path / "link.jsonl").symlink_to("b.jsonl")
    expected = expected.format(here=tmp_path.resolve())
    assert absolute_input(text) == expected
    assert parse_input(expected)[0] == parse_input(text)[0]


@pytest.mark.parametrize("given", ["", "corpora", "c*", "**/*.txt", "corpora/out", "link"])
def test_a_corpus_inside_its_input_or_around_it_is_refused(given: str, tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", "corpora/out/documents/mine.txt")
    (tmp_path / "link").symlink_to("corpora/out/documents/mine.txt")
    out = tmp_path / "corpora" / "out"
    with pytest.raises(InputError, match=rf"{out}: lies inside the input"):
        check_inputs([f"{tmp_path}/{given}"], out)
    check_inputs([f"{tmp_path}/*.jsonl", "s3://bucket/a.jsonl"], out)
