import os
import pickle
import re
from collections.abc import Callable
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
from loriini.data.read.inputs import check_inputs


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
        "hf://datasets/ORG/NAME": InputSpec("hf:ORG/NAME"),
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


def test_input_files_are_picklable(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("deep/b.txt", "a.jsonl.gz"):
        (tmp_path / name).write_text("x")
    found = input_files([f"web={tmp_path}:0.5", tmp_path / "deep" / "b.txt"])
    assert found == [
        InputFile(f"{tmp_path}/a.jsonl.gz", "a.jsonl.gz", "web", 0.5, in_folder=True, size=1),
        InputFile(f"{tmp_path}/deep/b.txt", "deep/b.txt", "web", 0.5, in_folder=True, size=1),
        InputFile(f"{tmp_path}/deep/b.txt", "b.txt", "b", size=1),
    ]
    assert pickle.loads(pickle.dumps(found)) == found


def test_slashes_at_a_folders_end_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("deep/b.txt", "a.txt"):
        (tmp_path / name).write_text("x")
    for end in ("", "/", "//"):
        found = [(file.name, file.domain) for file in input_files([f"{tmp_path}{end}"])]
        assert found == [("a.txt", tmp_path.name), ("deep/b.txt", "deep")]


def test_an_absolute_input_keeps_the_name_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "blob").write_text('{"text": "a"}')
    (tmp_path / "wiki.jsonl").symlink_to(tmp_path / "blob")
    assert absolute_input(tmp_path / "wiki.jsonl") == f"{tmp_path}/wiki.jsonl"


@pytest.mark.parametrize("limit", [1 << 30, 0])
def test_identity_shows_which_file_changed(
    tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "HASHED_BYTES", limit)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one")
    (tmp_path / "nothing").symlink_to(tmp_path / "absent")
    before = input_identity([tmp_path])
    assert input_identity([f"web={tmp_path}:0.5"]) == before
    (tmp_path / "b.txt").write_text("three")
    (tmp_path / "nothing").unlink()
    (tmp_path / "c.txt").write_text("new")
    after = input_identity([tmp_path])
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed == {f"{tmp_path}/{name}" for name in ("b.txt", "c.txt", "nothing")}


def test_identity_of_small_inputs_is_by_bytes(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one")
    a, b = input_identity([tmp_path]).values()
    assert a == b


def test_identity_of_a_remote_file() -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/a.txt", b"one")
    try:
        before = input_identity(["memory://bucket"])
        assert list(before) == ["memory:///bucket/a.txt"]
        assert input_identity(["memory://bucket"]) == before
        system.pipe("/bucket/a.txt", b"three")
        assert input_identity(["memory://bucket"]) != before
    finally:
        system.store.clear()


def test_a_missing_input_is_refused(tmp_path: Path) -> None:
    for look in (input_files, input_identity):
        with pytest.raises(InputError, match="no such file"):
            look([tmp_path / "absent.jsonl"])


def test_a_pattern_stands_for_the_files_that_match(tmp_path: Path) -> None:
    for name in ("w2.json", "w1.json", "v.json"):
        (tmp_path / name).write_text("x")
    pattern = f"{tmp_path}/w*.json"
    named = [f"web={tmp_path}/w{i}.json:0.5" for i in (1, 2)]
    assert input_files([f"web={pattern}:0.5"]) == input_files(named)
    assert input_identity([pattern]) == input_identity(named)
    with pytest.raises(InputError, match="no file matches the pattern"):
        input_files([f"{tmp_path}/x*.json"])


def test_a_file_in_folders_that_match_is_read_once(tmp_path: Path) -> None:
    for name in ("a.txt", "x/b.txt", "x/y/c.txt", "xy/d.txt"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text("x")
    assert input_files([f"{tmp_path}/data/**"]) == input_files([f"{tmp_path}/data/"])
    assert [file.name for file in input_files([f"{tmp_path}/data/**/*"])] == [
        "a.txt",
        "b.txt",
        "y/c.txt",
        "d.txt",
    ]
    system = fsspec.filesystem("memory")
    system.pipe({"/data/x/b.txt": b"x", "/data/x/y/c.txt": b"x", "/data/a.txt": b"x"})
    try:
        found = [file.path for file in input_files(["memory://data/**"])]
        assert found == [f"memory:///data/{name}" for name in ("a.txt", "x/b.txt", "x/y/c.txt")]
    finally:
        system.store.clear()


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (("manifest.json", "instances/manifest.json"), "a prepared corpus"),
        (("run.json", "metrics.jsonl"), "the folder of a run"),
        (("config.json", "model.safetensors"), "the folder of a model"),
    ],
)
def test_a_folder_of_our_own_is_no_text(names: tuple[str, ...], what: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text("{}")
    within = [] if "config.json" in names else [""]  # a folder of somebody's sources may hold a model
    for given in ("out", "o*", *within):
        with pytest.raises(InputError, match=f"/out: {what}, not documents; give the"):
            input_files([f"{tmp_path}/{given}"])


def test_a_remote_pattern_may_match_folders() -> None:
    system = fsspec.filesystem("memory")
    system.pipe({"/bucket/b1/a.txt": b"x", "/bucket/b2.txt": b"x", "/bucket/c.txt": b"x"})
    try:
        assert [part.path for part in input_files(["memory://bucket/b*"])] == [
            "memory:///bucket/b1/a.txt",
            "memory:///bucket/b2.txt",
        ]
    finally:
        system.store.clear()


@pytest.mark.parametrize("look", [input_files, input_identity])
def test_a_pipe_is_refused_without_reading(tmp_path: Path, look: Callable) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading, writing = os.pipe()
    try:
        for pipe in (tmp_path / "pipe", f"/dev/fd/{reading}"):
            with pytest.raises(InputError, match=r"neither a file nor a folder.*write it to a file"):
                look([pipe])
    finally:
        os.close(reading)
        os.close(writing)


def test_pipes_in_folders_have_an_identity(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert list(input_identity([tmp_path])) == [f"{tmp_path}/pipe"]


def test_a_file_name_with_a_line_end_gives_a_message_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "two\nlines.jsonl"
    with pytest.raises(InputError, match=r"two\\nlines\.jsonl: no such file"):
        input_files([path])


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no document found"):
        input_files([tmp_path])


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "b.jsonl": "{here}/b.jsonl",
        "wiki=a/*.jsonl:0.5": "wiki={here}/a/*.jsonl:0.5",
        "wiki=strange=a:0.5": "wiki={here}/strange=a:0.5",
        "strange=a:0.5": "{here}/strange=a:0.5",
        "file:///a/b:1": "/a/b",
        "web=s3://bucket/a*.parquet:0.1": "web=s3://bucket/a*.parquet:0.1",
        "hf:ORG/NAME:en:train": "hf:ORG/NAME:en:train",
        "hf:saved:train": "hf:{here}/saved:train",
        "saved=hf:saved:train:0.5": "saved=hf:{here}/saved:train:0.5",
    }.items(),
)
def test_only_the_path_of_a_local_input_is_made_absolute(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strange=a:0.5").touch()
    (tmp_path / "saved").mkdir()
    expected = expected.format(here=tmp_path.resolve())
    assert absolute_input(text) == expected
    before, after = parse_input(text), parse_input(expected)
    assert (before.name, before.weight) == (after.name, after.weight)


def test_a_corpus_inside_its_input_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("x")
    for given in (str(tmp_path), f"hf:{tmp_path}", f"hf:{tmp_path}:default:test"):
        with pytest.raises(InputError, match="lies inside the input"):
            check_inputs([given], tmp_path / "corpora" / "out", ())


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("pattern", ["corpora/*", "c*", "[c]orpora/o?t", "**/*.jsonl", "corpora/**"])
def test_a_pattern_that_matches_the_corpus_is_refused(made: bool, pattern: str, tmp_path: Path) -> None:
    """Before the corpus exists, too: else the same command would end otherwise the second time."""
    (tmp_path / "corpora").mkdir()
    (tmp_path / "corpora" / "out.jsonl").write_text("x")
    (tmp_path / "cat.jsonl").write_text("x")
    (tmp_path / "corpora" / "oat").write_text("x")
    out = tmp_path / "corpora" / "out"
    if made:
        out.mkdir()
    with pytest.raises(
        InputError, match=rf"{out}: lies inside the input {re.escape(str(tmp_path))}/.*; choose"
    ):
        check_inputs([f"{tmp_path}/{pattern}"], out, ())
    check_inputs([f"{tmp_path}/{pattern}*.jsonl" for pattern in ("c", "corpora/")], out, ())


@pytest.mark.parametrize("given", ["documents", "documents/mine.txt", "docu*/*", "link"])
def test_an_input_in_a_stage_of_the_corpus_is_refused(given: str, tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "mine.txt").write_text("text")
    (tmp_path / "link").symlink_to("documents/mine.txt")
    with pytest.raises(InputError, match=r"lies in a stage of the corpus .*; choose another --out"):
        check_inputs([f"{tmp_path}/{given}"], tmp_path, ("order", "documents"))
    check_inputs([f"{tmp_path}/{given}"], tmp_path, ("order",))
