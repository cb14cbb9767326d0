"""Help, versions, and what the parser takes."""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from threading import Thread

import pytest

from cli.calls import Made, assert_refused, call
from loriini import __version__
from loriini.cli import COMMANDS
from loriini.cli.parser import MOST_BYTES, make_parser, output_file, read_text_file
from loriini.common.errors import InputError
from loriini.data.prepare.settings import PrepareSettings
from loriini.quickstart import Quickstart

NAMES = [command.__name__ for command in COMMANDS]
LIGHT = """
import sys
from loriini.cli import main
for arguments in sys.argv[1:]:
    try:
        main(arguments.split())
    except SystemExit:
        pass
print(sorted({"numpy", "torch", "transformers", "rich", "loriini.data.jobs"} & sys.modules.keys()))
"""


def actions(command: str) -> Iterator[argparse.Action]:
    parser = make_parser(COMMANDS)
    subparsers = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    yield from subparsers.choices[command]._actions


def test_help_errors_and_the_version_import_nothing_heavy() -> None:
    calls = ["--help", "--version", "nothing", "train --out", *(f"{name} --help" for name in NAMES)]
    done = subprocess.run([sys.executable, "-c", LIGHT, *calls], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stdout.count("usage: loriini") == 1 + len(NAMES)
    assert f"\nloriini {__version__}\n" in done.stdout
    assert "invalid choice: 'nothing'" in done.stderr


@pytest.mark.parametrize("command", NAMES)
def test_every_argument_has_a_help_text(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert [a.option_strings or a.dest for a in actions(command) if not a.help] == []
    ended = call(capsys, command, "--help")
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize(
    ("command", "settings"), [("prepare", PrepareSettings), ("quickstart", Quickstart)], ids=str
)
def test_help_texts_name_the_defaults(command: str, settings: type) -> None:
    named = {a.dest: found[1] for a in actions(command) if (found := re.search(r"\(([\w:]+)\)$", a.help))}
    defaults = {field.name: str(field.default).lower().removesuffix(".0") for field in fields(settings)}
    assert len(named) >= 3
    assert named.items() <= defaults.items()


def test_what_follows_two_dashes_is_no_option() -> None:
    assert make_parser(COMMANDS).parse_args(["inspect", "--", "--corpus"]).corpus == Path("--corpus")


def test_a_repeated_option_keeps_its_earlier_values() -> None:
    for action in (a for command in NAMES for a in actions(command) if a.option_strings and a.nargs == "+"):
        parser, name = argparse.ArgumentParser(), action.option_strings[-1]
        parser._add_action(action)
        for _ in range(2):  # the first call must not change the default
            values = getattr(parser.parse_args([name, "a", "b", name, "c"]), action.dest)
            assert (name, list(map(str, values))) == (name, ["a", "b", "c"])


def test_a_prompt_file_is_a_regular_file_of_bounded_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "large", "wb") as file:
        file.truncate(MOST_BYTES + 1)
    (tmp_path / "good").write_text("wörds", encoding="utf-8")
    assert read_text_file(tmp_path / "good") == "wörds"
    (tmp_path / "marked").write_text("wörds", encoding="utf-8-sig")
    assert read_text_file(tmp_path / "marked") == "wörds"
    for name, reason in (("pipe", "pipe"), (".", "folder"), ("large", "larger than 64 MiB")):
        reader = Thread(target=refused, args=(tmp_path / name, found := []), daemon=True)
        reader.start()
        reader.join(60)
        assert reason in found[0]


def refused(path: Path, found: list[str]) -> None:
    with pytest.raises(InputError) as error:
        read_text_file(path)
    found.append(str(error.value))


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "--documents"),
        ("analyze", "--documents"),
        ("generate", "--prompt"),
        ("export", "--to", "llama", "--out", "unwritten", "--prompt"),
    ],
    ids=lambda command: command[0],
)
def test_a_device_that_is_not_there_is_refused(
    command: tuple[str, ...], made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command
    ended = call(capsys, name, made.run, *options, made.documents, "--device", "cuda:99")
    assert_refused(ended, "--device cuda:99: this machine has no such device; choose cpu")


def test_threads_wait_without_spinning_unless_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for before, after in ((None, "passive"), ("active", "active")):
        monkeypatch.setenv("OMP_WAIT_POLICY", before or "")
        if before is None:
            monkeypatch.delenv("OMP_WAIT_POLICY")
        call(capsys, "designs")
        assert os.environ["OMP_WAIT_POLICY"] == after


@pytest.mark.parametrize("given", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", None])
def test_a_gpus_memory_grows_in_place_unless_told(
    given: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    if given:
        monkeypatch.setenv(given, "max_split_size_mb:128")
    call(capsys, "designs")
    found = {name: os.environ[name] for name in os.environ if name.endswith("ALLOC_CONF")}
    assert found == (
        {given: "max_split_size_mb:128"} if given else {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    )


def test_a_file_that_is_written_is_no_pipe_or_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(InputError, match="is a pipe or device; give the name of a file"):
            output_file("mark")(str(tmp_path / name))


def test_a_name_must_leave_room_for_that_of_an_unfinished_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="File name too long; choose another path"):
        output_file("mark")(str(tmp_path / ("n" * 250)))
    output_file("mark")(str(tmp_path / ("n" * 240)))


def test_a_link_to_a_file_that_is_written_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("a mark")
    for name in ("there", "later"):
        (tmp_path / name).symlink_to(f"{name}.json")
        assert output_file("mark")(str(tmp_path / name)) == (tmp_path / f"{name}.json").resolve()
    assert output_file("mark")(str(tmp_path / "plain")) == tmp_path / "plain"
    (tmp_path / "nowhere").symlink_to("there.json/x")
    with pytest.raises(InputError, match="a file is where a folder must be"):
        output_file("mark")(str(tmp_path / "nowhere"))


def test_a_file_of_another_kind_is_not_written_over(tmp_path: Path) -> None:
    """It may be the text that is evaluated, or a run's settings."""
    parse = output_file('"perplexity"', '"tasks"')
    for content in ("", '{"perplexity": {}}', '[{"tasks": {}}]'):
        (tmp_path / "out").write_text(content)
        assert parse(str(tmp_path / "out")) == tmp_path / "out"
    for content in ('{"text": "the \\"tasks\\""}', '{"name": "lory"}', "text"):
        (tmp_path / "out").write_text(content)
        with pytest.raises(InputError, match="out: exists, and is no output of this command; choose another"):
            parse(str(tmp_path / "out"))
