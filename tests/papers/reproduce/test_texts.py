"""Text of a reproduction: made once, never of two splits, and of domains that have enough of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loriini.common.errors import InputError
from loriini.data.read.document import Document
from loriini.data.read.names import HELDOUT, TRAIN
from loriini.papers.reproduce.scales import TINY
from loriini.papers.reproduce.texts import MIXED, SHORT, Texts
from reproduce.conftest import TEST

SCALE = replace(TINY, characters=600, short=10)
"""Shares of 150 characters for training and 15 held out with four domains, 300 and 30 with two."""


def texts_in(folder: Path, *source: Path) -> Texts:
    return Texts(folder, replace(TEST, short=1000), tuple(map(str, source)))


def test_a_flawed_record_of_the_text_is_skipped_when_asked(text: Path, tmp_path: Path) -> None:
    flawed = tmp_path / "flawed.jsonl"
    flawed.write_text("{\n")
    texts = texts_in(tmp_path / "text", text, flawed)
    with pytest.raises(InputError, match=r"flawed\.jsonl:1: not valid JSON.*pass --on-error skip"):
        texts.heldout(MIXED)
    lines = replace(texts, on_error="skip").heldout(MIXED).read_text().splitlines()
    assert json.loads(lines[0])["text"]


def texts_of(folder: Path, lengths: dict[str, tuple[list[int], list[int]]]) -> Texts:
    """Text with documents of these lengths for training and held out, by domain."""
    texts = Texts(folder, SCALE)
    texts.__dict__["by_domain"] = {
        side: {
            domain: [Document(f"{domain}{side}{n}", "x" * size, domain) for n, size in enumerate(of_side[i])]
            for domain, of_side in lengths.items()
        }
        for i, side in enumerate((TRAIN, HELDOUT))
    }
    return texts


def test_domains_without_enough_short_documents_are_left_out(tmp_path: Path) -> None:
    enough = [10] * 30, [10] * 3
    texts = texts_of(
        tmp_path, {"arxiv": ([10] * 30, [6, 90]), "books": ([10, 900], [90]), "web": enough, "wiki": enough}
    )
    assert texts.domains(MIXED) == ["arxiv", "books", "web", "wiki"]
    assert texts.domains(SHORT) == ["web", "wiki"]
    counts = {side: len(texts.documents(SHORT, side)) for side in (TRAIN, HELDOUT)}
    assert counts == {TRAIN: 60, HELDOUT: 6}


def test_where_no_domain_has_enough_short_documents_all_are_kept(tmp_path: Path) -> None:
    texts = texts_of(tmp_path, {"web": ([10], [5]), "wiki": ([9], [5])})
    assert texts.domains(SHORT) == ["web", "wiki"]
