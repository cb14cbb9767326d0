"""A corpus in other programs' formats."""

from pathlib import Path

import pytest

from cli.calls import Made, assert_refused, call


@pytest.mark.parametrize(
    ("form", "back_from", "source", "told"),
    [
        ("megatron", "megatron", "instances", "instances: give Megatron --seq-length 65"),
        ("parquet", "hf", ".", ""),
    ],
)
def test_a_corpus_goes_to_other_formats_and_back(
    made: Made,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    form: str,
    back_from: str,
    source: str,
    told: str,
) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    ended = call(capsys, "convert", made.corpus, "--to", form, "--out", there)
    assert (ended.code, ended.out) == (0, f"{there}\n")
    assert ended.err.split(",")[0] == told
    for option in ("--length", 64), ("--tokenizer", made.corpus / "tokenizer"):
        unused = call(capsys, "convert", made.corpus, "--to", form, "--out", tmp_path / "x", *option)
        assert_refused(unused, f"{option[0]}: has no effect with --to")
    to_corpus = ("convert", there / source, "--from", back_from, "--length", 64, "--out", back)
    assert_refused(call(capsys, *to_corpus), "--from needs --tokenizer PATH")
    assert call(capsys, *to_corpus, "--tokenizer", there / "tokenizer").code == 0
    names = [folder / "instances" / "instances.bin" for folder in (made.corpus, back)]
    assert names[0].read_bytes() == names[1].read_bytes()
    train = ("train", "tiny-dense", "--out", tmp_path / "run", "--corpus", made.corpus, back)
    ended = call(capsys, *train, "--corpus-weights", "2,0.5", "--steps", 1, "--length", 64)
    assert (ended.code, ended.err) == (0, "")
