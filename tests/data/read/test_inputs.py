import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from loriini.common.errors import InputError
from loriini.data.read import (
    InputFile,
    InputSpec,
    absolute_input,
    input_files,
    input_identity,
    inputs,
    parse_input,
)
from loriini.data.read.inputs import check_inputs, is_changed


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "a/b.jsonl": InputSpec("a/b.jsonl"),
        "wiki=a/b.jsonl": InputSpec("a/b.jsonl", "wiki"),
        "wiki=a/b.jsonl:0.5": InputSpec("a/b.jsonl", "wiki", 0.5),
        "a/b.jsonl:.25": InputSpec("a/b.jsonl", None, 0.25),
        "file:///a/b:1": InputSpec("/a/b"),
        "a/b.jsonl:1e-3": InputSpec("a/b.jsonl", None, 0.001),
        "http://localhost:8080": InputSpec("http://localhost:8080"),
        "http://localhost:8080:0.5": InputSpec("http://localhost:8080", None, 0.5),
        "s3://bucket:0.5": InputSpec("s3://bucket", None, 0.5),
        "a/b=c": InputSpec("a/b=c"),
        "https://x.org/a.jsonl?key=1": InputSpec("https://x.org/a.jsonl?key=1"),
        "web=s3://bucket/a*.parquet": InputSpec("s3://bucket/a*.parquet", "web"),
        "hf:ORG/NAME:en:train": InputSpec("hf:ORG/NAME:en:train"),
        "web=~/a.jsonl:0.5": InputSpec(str(Path.home() / "a.jsonl"), "web", 0.5),
        "hf://datasets/ORG/NAME/data": InputSpec("hf://datasets/ORG/NAME/data"),
    }.items(),
)
def test_parse_name_path_and_weight(text: str, expected: InputSpec) -> None:
    assert parse_input(text) == expected


def test_an_empty_input_is_not_the_working_folder() -> None:
    with pytest.raises(InputError, match="an input is empty; give a path"):
        absolute_input("")


def test_a_folder_named_like_a_protocol_is_no_path_of_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("s3", "hf"):
        Path(name).mkdir()
    assert parse_input("s3://bucket/a.jsonl") == InputSpec("s3://bucket/a.jsonl")
    assert parse_input("hf:ORG/NAME:0.5") == InputSpec("hf:ORG/NAME", None, 0.5)


@pytest.mark.parametrize("name", ["lang=en.jsonl", "a:1", "lang=en:0.5"])
def test_an_existing_file_is_a_path_whatever_its_name(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("x")
    assert parse_input(name) == InputSpec(name)
    assert parse_input(f"web={name}") == InputSpec(name, "web")
    assert parse_input(f"web={name}:0.5") == InputSpec(name, "web", 0.5)


def test_a_pattern_that_matches_with_its_equals_sign_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the folders that Hive and Spark write; files outside of them are not read."""
    monkeypatch.chdir(tmp_path)
    for name in ("date=1/a.jsonl", "date=2/a.jsonl", "two/a.jsonl"):
        Path(name).parent.mkdir()
        Path(name).write_text("x")
    assert parse_input("date=*/a.jsonl:0.5") == InputSpec("date=*/a.jsonl", None, 0.5)
    assert parse_input("all=date=*/a.jsonl") == InputSpec("date=*/a.jsonl", "all")
    assert parse_input("all=*/a.jsonl") == InputSpec("*/a.jsonl", "all")
    found = input_files(["date=*/a.jsonl"])
    assert [(file.path, file.domain) for file in found] == [(f"date={i}/a.jsonl", "a") for i in (1, 2)]


@pytest.mark.parametrize("weight", ["0", "2", "1.5", "-1", "1e3", "nan", "inf", "0,5"])
def test_a_weight_outside_of_0_to_1_is_refused(tmp_path: Path, weight: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("x")
    with pytest.raises(InputError, match=rf"the weight {weight} is not in \(0, 1\].*--corpus-weights"):
        parse_input(f"{path}:{weight}")


def write(folder: Path, *names: str, content: str = "x") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


def test_input_files_are_picklable(tmp_path: Path) -> None:
    write(tmp_path, "deep/b.txt", "a.jsonl.gz")
    found = input_files([f"web={tmp_path}:0.5", tmp_path / "deep" / "b.txt"])
    assert [replace(file, state={}) for file in found] == [
        InputFile(f"{tmp_path}/a.jsonl.gz", "a.jsonl.gz", "web", 0.5, in_folder=True),
        InputFile(f"{tmp_path}/deep/b.txt", "deep/b.txt", "web", 0.5, in_folder=True),
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
    os.mkfifo(tmp_path / "pipe")
    before = input_identity([tmp_path])
    assert input_identity([f"web={tmp_path}:0.5"]) == before
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


def test_what_a_server_reports_about_single_files_only_is_no_change(
    memory: fsspec.AbstractFileSystem,
) -> None:
    memory.pipe("/bucket/a.txt", b"one")
    (file,) = input_files(["memory://bucket/a.txt"])
    assert not is_changed(replace(file, state={"etag": "of a listing", "size": "3"}))
    assert is_changed(replace(file, state={"size": "4"}))


def test_a_pattern_stands_for_the_files_that_match(tmp_path: Path) -> None:
    write(tmp_path, "w2.json", "w1.json", "v.json")
    pattern = f"{tmp_path}/w*.json"
    named = [f"web={tmp_path}/w{i}.json:0.5" for i in (1, 2)]
    assert input_files([f"web={pattern}:0.5"]) == input_files(named)
    assert input_identity([pattern]) == input_identity(named)


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
    reading, writing = os.pipe()
    try:
        for given, reason in {
            "absent.jsonl": "no such file",
            "x*.json": "no file matches the pattern",
            "two\nlines.jsonl": r"two\\nlines\.jsonl: no such file",
            "pipe": "neither a file nor a folder",
            f"/dev/fd/{reading}": "neither a file nor a folder",
            "empty": "no document found",
        }.items():
            with pytest.raises(InputError, match=reason):
                look([tmp_path / given])
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "b.jsonl": "{here}/b.jsonl",
        "link.jsonl": "{here}/link.jsonl",
        "wiki=a/*.jsonl:0.5": "wiki={here}/a/*.jsonl:0.5",
        "wiki=strange=a:0.5": "wiki={here}/strange=a:0.5",
        "strange=a:0.5": "{here}/strange=a:0.5",
        "file:///a/b:1": "/a/b",
        "web=s3://bucket/a*.parquet:0.1": "web=s3://bucket/a*.parquet:0.1",
        "hf:ORG/NAME:en:train": "hf:ORG/NAME:en:train",
    }.items(),
)
def test_only_the_path_of_a_local_input_is_made_absolute(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strange=a:0.5").touch()
    (tmp_path / "link.jsonl").symlink_to("b.jsonl")
    expected = expected.format(here=tmp_path.resolve())
    assert absolute_input(text) == expected
    before, after = parse_input(text), parse_input(expected)
    assert (before.name, before.weight) == (after.name, after.weight)


@pytest.mark.parametrize("given", ["", "corpora", "c*", "**/*.txt", "corpora/out", "link"])
def test_a_corpus_inside_its_input_or_around_it_is_refused(given: str, tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", "corpora/out/documents/mine.txt")
    (tmp_path / "link").symlink_to("corpora/out/documents/mine.txt")
    out = tmp_path / "corpora" / "out"
    with pytest.raises(InputError, match=rf"{out}: lies inside the input"):
        check_inputs([f"{tmp_path}/{given}"], out)
    check_inputs([f"{tmp_path}/*.jsonl", "s3://bucket/a.jsonl"], out)
