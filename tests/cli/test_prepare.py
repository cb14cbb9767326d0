"""A corpus from documents."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from cli.calls import Made, assert_refused, call
from loriini.data.prepare.settings import PrepareSettings


def test_prepare_prints_what_it_made_and_makes_it_once(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ("--documents", made.documents, "--out", made.corpus.parent, "--domain-field", "topic")
    ended = call(capsys, "prepare", "corpus", *again, "--length", 64, "--tokenizer", "bpe:320")
    assert (ended.code, ended.err) == (0, "")
    line = r".*corpus: 240 documents, [\d,]+ tokens of a vocabulary of 320, [\d,]+ instances of 64\n"
    assert re.fullmatch(line, ended.out)
    other = call(capsys, "prepare", "corpus", *again, "--length", 64, "--tokenizer", "bpe:310")
    assert_refused(other, "tokenizer: was made with other settings (tokenizer)")


def test_prepare_has_an_option_for_every_setting(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    shown = call(capsys, "prepare", "--help").out
    for field in fields(PrepareSettings):
        assert f"  --{field.name.replace('_', '-')} " in shown
    prepare = ("prepare", "corpus", "--documents", made.documents, "--out", made.corpus.parent)
    settings = ("--domain-field", "topic", "--length", 64, "--tokenizer", "bpe:320")
    for option, was, value in (("neighbors", 50, 7), ("order", "similar", "plain"), ("length", 64, 32)):
        other = call(capsys, *prepare, *settings, f"--{option}", value)
        assert_refused(other, f": was made with other settings ({option} {was}, not {value}); choose another")


def test_prepare_prints_what_it_left_out_and_renamed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["some words", "other words", "some words", "more of them"]
    records = [json.dumps({"id": "same", "text": text}) for text in texts]
    (tmp_path / "d.jsonl").write_text("\n".join([*records, "no JSON"]))
    settings = ("--length", 4, "--tokenizer", "bpe:300", "--order", "random", "--on-error", "skip")
    ended = call(capsys, "prepare", "c", "--documents", tmp_path / "d.jsonl", "--out", tmp_path, *settings)
    assert ended.out.splitlines()[1:] == [
        "left out: not valid JSON 1, exact duplicate 1; "
        "each is in documents/dropped.jsonl or duplicates/duplicates.jsonl",
        "renamed: 2 documents that had the id of an earlier one",
    ]


def test_prepare_prints_what_it_held_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [json.dumps({"id": str(i), "text": f"document number {i}"}) for i in range(200)]
    (tmp_path / "d.jsonl").write_text("\n".join(records))
    settings = ("--length", 4, "--tokenizer", "bpe:300", "--order", "random", "--heldout-share", 0.5)
    prepare = ("prepare", "c", "--documents", f"{tmp_path / 'd.jsonl'}", "--out", tmp_path)
    first, held = call(capsys, *prepare, *settings).out.splitlines()
    path = tmp_path / "c" / "heldout" / "documents.jsonl"
    written = len(path.read_text().splitlines())
    assert 60 < written < 140
    assert first.startswith(f"{tmp_path / 'c'}: 200 documents, ")
    assert held == f"held out: {written} documents, in {path}"
