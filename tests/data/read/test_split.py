"""Splits of the user's documents: what is held out, and how much of each domain is kept."""

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from loriini.common.errors import InputError
from loriini.data.read.document import Document
from loriini.data.read.sampling import hash_fraction
from loriini.data.read.split import Side, split_documents

PLENTY = 10**9


def write_lines(
    path: Path, names: range, domain: str = "prose", text: str = "some words", **more: str
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [{"id": f"{domain}{i}", "text": f"{text} {i}", "domain": domain, **more} for i in names]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def names(documents: list[Document]) -> set[str]:
    return {document.id for document in documents}


def test_all_copies_of_a_text_are_on_one_side(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"text": "text {i % 300}"}}\n' for i in range(600)))
    sides = {
        side: [d.text for d in found] for side, found in split_documents([str(path)], PLENTY, PLENTY).items()
    }
    assert not set(sides["train"]) & set(sides["heldout"])
    assert sorted(sides["train"] + sides["heldout"]) == sorted(f"text {i}" for i in range(300))


def test_a_training_document_with_a_held_out_text_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lines(tmp_path / "a.jsonl", range(300))
    write_lines(tmp_path / "b.heldout.jsonl", range(290, 310), "other", "some words")
    sides = split_documents([str(tmp_path)], PLENTY, 1)
    assert names(sides["train"]) == {f"prose{i}" for i in range(290)}
    assert len(sides["heldout"]) == 1
    assert capsys.readouterr().err == "warning: 10 left out: its text is held out\n"


def plain_side(documents: list[Document], characters: int) -> list[Document]:
    """The naive twin of `Side`: every document in memory, and the budget applied at the end."""
    distinct = {(document.text, document.domain): document for document in reversed(documents)}
    ordered = sorted(distinct.values(), key=lambda d: (hash_fraction(d.text), d.domain))
    limit = max(1, characters // len({document.domain for document in documents}))
    kept, used = [], Counter[str]()
    for document in ordered:
        if used[document.domain] < limit:
            used[document.domain] += len(document.text)
            kept.append(document)
    return kept


@pytest.mark.parametrize("characters", [1, 300, 3_000, 10**6])
def test_a_side_is_that_of_the_plain_way_and_holds_little_more(characters: int) -> None:
    random = Random(characters)
    longest = 400
    documents = [
        Document(f"{i}", "x" * random.randrange(1, longest) + str(random.randrange(500)), f"d{i // 400}")
        for i in range(2_000)
    ]
    documents += random.choices(documents, k=500)
    side, held = Side(characters), []
    for document in documents:
        side.add(hash_fraction(document.text), document)
        held.append(side.sizes.total())
    assert side.documents() == plain_side(documents, characters)
    harmonic = sum(1 / domains for domains in range(1, 6))
    assert max(held) < characters * harmonic + 5 * (longest + 3)


def test_files_marked_as_held_out_are_the_whole_held_out_side(tmp_path: Path) -> None:
    write_lines(tmp_path / "prose.jsonl", range(300))
    write_lines(tmp_path / "deep" / "prose.heldout.jsonl", range(300, 310))
    sides = split_documents([str(tmp_path)], PLENTY, PLENTY)
    assert names(sides["heldout"]) == {f"prose{i}" for i in range(300, 310)}
    assert len(sides["train"]) == 300


@pytest.mark.parametrize(("count", "side"), [(1, "heldout"), (0, "train")])
def test_a_side_without_documents_is_refused(count: int, side: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "a.heldout.jsonl", range(3))
    path = (
        tmp_path / "a.heldout.jsonl" if side == "train" else write_lines(tmp_path / "b.jsonl", range(count))
    )
    more = "more text" if side == "heldout" else r"files that are not named \*\.heldout\.\*"
    with pytest.raises(InputError, match=rf"{path}: no {side} document is left; give {more}"):
        split_documents([str(path)], PLENTY, PLENTY)


def test_text_beside_records_is_counted_and_read_when_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lines(tmp_path / "a.jsonl", range(50))
    for i in range(30):
        (tmp_path / f"{i}.txt").write_text(f"a plain text {i}")
    sides = split_documents([str(tmp_path)], PLENTY, PLENTY)
    assert sum(map(len, sides.values())) == 50
    reason = "next to records; give the file by name to read it"
    assert capsys.readouterr().err == f"warning: 30 left out: {reason}\n"
    named = split_documents([str(tmp_path / "*.jsonl"), str(tmp_path / "*.txt")], PLENTY, PLENTY)
    assert sum(map(len, named.values())) == 80
