"""Text of a reproduction: made once, and never of two splits."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loriini.errors import InputError
from loriini.reproduce.texts import MIXED, SHORT, SPLIT, Texts
from reproduce.conftest import TEST


def texts_in(folder: Path, *source: Path) -> Texts:
    return Texts(folder, replace(TEST, short=1000), tuple(map(str, source)))


def test_text_that_an_earlier_version_split_is_kept_but_not_added_to(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "text"
    made = texts_in(folder, text).heldout(MIXED)
    assert texts_in(folder, text).heldout(SHORT).exists()
    (folder / SPLIT).unlink()  # as in the first versions
    (folder / f"{SHORT}.heldout.jsonl").unlink()
    assert texts_in(folder, text).heldout(MIXED) == made
    for make in (
        lambda: texts_in(folder, text).heldout(SHORT),
        lambda: texts_in(folder, text).corpus(MIXED, "random"),
    ):
        with pytest.raises(InputError, match=r"an earlier version split .* choose another --out"):
            make()


def test_a_flawed_record_of_the_text_is_skipped_when_asked(text: Path, tmp_path: Path) -> None:
    flawed = tmp_path / "flawed.jsonl"
    flawed.write_text("{\n")
    texts = texts_in(tmp_path / "text", text, flawed)
    with pytest.raises(InputError, match=r"flawed\.jsonl:1: not valid JSON.*pass --on-error skip"):
        texts.heldout(MIXED)
    lines = replace(texts, on_error="skip").heldout(MIXED).read_text().splitlines()
    assert json.loads(lines[0])["text"]
