"""Arguments that commands share: places to write, texts, devices."""

import os
from pathlib import Path
from threading import Thread

import pytest

from cli.calls import Made, assert_refused, call
from loriini.cli.arguments import MOST_BYTES, output_file, read_text_file
from loriini.common.errors import InputError


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


def test_a_file_that_is_written_is_no_pipe_or_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(InputError, match="pipe or device"):
            output_file("mark")(str(tmp_path / name))


def test_a_name_must_leave_room_for_that_of_an_unfinished_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too long"):
        output_file("mark")(str(tmp_path / ("n" * 250)))
    output_file("mark")(str(tmp_path / ("n" * 240)))


def test_a_link_to_a_file_that_is_written_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("a mark")
    for name in ("there", "later"):
        (tmp_path / name).symlink_to(f"{name}.json")
        assert output_file("mark")(str(tmp_path / name)) == (tmp_path / f"{name}.json").resolve()
    assert output_file("mark")(str(tmp_path / "plain")) == tmp_path / "plain"
    (tmp_path / "nowhere").symlink_to("there.json/x")
    with pytest.raises(InputError, match="Not a directory"):
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
