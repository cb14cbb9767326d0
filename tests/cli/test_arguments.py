"""Arguments that commands share: places to write, and texts."""

import os
from pathlib import Path

import pytest

from loriini.cli.arguments import MOST_BYTES, output_file, read_text_file
from loriini.common.errors import InputError


def test_a_text_is_a_regular_file_of_bounded_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "large", "wb") as file:
        file.truncate(MOST_BYTES + 1)
    (tmp_path / "good").write_text("wörds", encoding="utf-8-sig")
    assert read_text_file(tmp_path / "good") == "wörds"
    for name, reason in ((".", "folder"), ("pipe", "pipe"), ("large", "larger than 64 MiB")):
        with pytest.raises(InputError, match=reason):
            read_text_file(tmp_path / name)


def test_a_file_can_be_written_where_it_is_given(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    (tmp_path / "link").symlink_to("later.json")
    assert output_file("mark")(str(tmp_path / "plain")) == tmp_path / "plain"
    assert output_file("mark")(str(tmp_path / "link")) == (tmp_path / "later.json").resolve()
    for name, reason in (
        ("pipe", "pipe or device"),
        ("to-pipe", "pipe or device"),
        ("pipe/x", "Not a directory"),
        ("n" * 250, "too long"),  # for the name that it has while it is unfinished
    ):
        with pytest.raises(InputError, match=reason):
            output_file("mark")(str(tmp_path / name))


def test_a_file_of_another_kind_is_not_written_over(tmp_path: Path) -> None:
    """It may be the text that is evaluated, or a run's settings."""
    parse = output_file('"perplexity"', '"tasks"')
    for content in ("", '{"perplexity": {}}', '[{"tasks": {}}]'):
        (tmp_path / "out").write_text(content)
        assert parse(str(tmp_path / "out")) == tmp_path / "out"
    for content in ('{"text": "the \\"tasks\\""}', '{"name": "lory"}', "text"):
        (tmp_path / "out").write_text(content)
        with pytest.raises(InputError, match="out: exists"):
            parse(str(tmp_path / "out"))
