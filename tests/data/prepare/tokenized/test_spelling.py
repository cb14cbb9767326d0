"""Tokenizers that cannot spell every text: refused, warned of, and their unknown tokens counted."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from loriini.common.errors import InputError
from loriini.data.jobs.artifact import write_manifest
from loriini.data.prepare.inspection import inspect_corpus
from loriini.data.prepare.prepare import open_corpus, prepare_documents
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.prepare.tokenized.spelling import (
    PROBE,
    check_spelling,
    contents_of,
    keep_spellings_as_text,
    unknown_id,
)
from loriini.data.prepare.tokenized.tokenizer import check_tokenizer
from loriini.data.read.document import Document

WORDS = {"<eos>": 0, "a": 1, "b": 2}
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]
ABSENT_FROM_TEXT = "ÀÁõö÷øùúûüýþÿ"
"""Bytes that UTF-8 does not have; in GPT-2's alphabet these characters stand for themselves."""


def bpe(*symbols: str, **options: object) -> Tokenizer:
    vocabulary = {symbol: i for i, symbol in enumerate(["<eos>", *symbols])}
    return Tokenizer(models.BPE(vocabulary, [], **options))


def byte_level(*symbols: str, **options: object) -> Tokenizer:
    tokenizer = bpe(*symbols, **options)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def unigram(unk_id: int | None) -> Tokenizer:
    return Tokenizer(models.Unigram([("<eos>", 0.0), ("a", -1.0), ("<unk>", -2.0)], unk_id=unk_id))


def saved(tokenizer: Tokenizer, folder: Path) -> str:
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder / "tokenizer.json")


PIECES = ["<s>", "</s>", "<unk>", *FALLBACK, "▁", "<", ">", "/", "a", "s", "k", "▁<", "</"]
WHOLE = {piece: i for i, piece in enumerate(PIECES)}
MAKE_SPECIAL_TOKENS = {
    "Unigram": models.Unigram([(piece, -float(i > 2)) for piece, i in WHOLE.items()], 2, byte_fallback=True),
    "WordLevel": models.WordLevel(WHOLE, unk_token="<unk>"),
    "WordPiece": models.WordPiece(WHOLE, unk_token="<unk>"),
    "BPE": models.BPE(WHOLE, [], unk_token="<unk>", byte_fallback=True, ignore_merges=True),
    "merges": models.BPE(
        {**WHOLE, "s>": len(WHOLE)},
        [("s", ">"), ("<", "s>"), ("</", "s>")],
        unk_token="<unk>",
        byte_fallback=True,
    ),
}


@pytest.mark.parametrize("words", ["whole", "by spaces"])
@pytest.mark.parametrize("kind", MAKE_SPECIAL_TOKENS)
def test_spellings_of_special_tokens_are_text(kind: str, words: str) -> None:
    tokenizer = Tokenizer(MAKE_SPECIAL_TOKENS[kind])
    if words == "by spaces":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.encode_special_tokens = True
    spells_all = kind in ("Unigram", "BPE", "merges")
    if words == "whole":
        assert "<s>" in tokenizer.encode("<s>").tokens
    keep_spellings_as_text(tokenizer)
    once = tokenizer.to_str()
    keep_spellings_as_text(tokenizer)
    assert tokenizer.to_str() == once
    for spelling in ("<s>", "</s>", *(("<unk>", "<0x41>") if spells_all else ())):
        for text in (spelling, f"a {spelling}a", f"<{spelling}s"):
            assert spelling not in tokenizer.encode(text, add_special_tokens=False).tokens
    tokenizer.encode_special_tokens = False
    assert tokenizer.encode("a</s>", add_special_tokens=False).ids[-1] == WHOLE["</s>"]


def test_the_probe_has_every_byte_of_utf8() -> None:
    surrogates = range(0xD800, 0xE000)
    every = "".join(chr(code) for code in range(0x110000) if code not in surrogates)
    assert set(PROBE.encode()) == set(every.encode())


def test_the_unknown_token_of_each_kind() -> None:
    def found(tokenizer: Tokenizer) -> int | None:
        return unknown_id(contents_of(tokenizer))

    assert found(Tokenizer(models.WordLevel(WORDS, unk_token="b"))) == 2
    assert found(Tokenizer(models.WordPiece(WORDS, unk_token="a"))) == 1
    assert found(Tokenizer(models.WordLevel(WORDS, unk_token="absent"))) is None
    assert (found(bpe("x", unk_token="x")), found(bpe("x"))) == (1, None)
    assert (found(unigram(2)), found(unigram(None))) == (2, None)


@pytest.mark.parametrize(
    ("tokenizer", "reason"),
    [
        (Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]")), r"Missing \[UNK\] token"),
        (Tokenizer(models.WordPiece(WORDS, unk_token="[UNK]")), r"Missing \[UNK\] token"),
        (bpe("a", unk_token="<unk>"), "Unk token `<unk>` not found"),
        (byte_level(*BYTES[1:], unk_token="<unk>"), "Unk token `<unk>` not found"),
        (unigram(None), "`unk_id` is missing"),
    ],
)
def test_one_that_fails_at_some_text_is_refused(tokenizer: Tokenizer, reason: str, tmp_path: Path) -> None:
    spec = saved(tokenizer, tmp_path)
    with pytest.raises(InputError, match=rf"{spec}: cannot encode .*{reason}.*; add its unknown token"):
        check_tokenizer(spec)


@pytest.mark.parametrize(
    ("tokenizer", "drops"),
    [
        (byte_level(*BYTES), False),
        (byte_level(*BYTES, unk_token="<unk>"), False),
        (byte_level(*(symbol for symbol in BYTES if symbol not in ABSENT_FROM_TEXT)), False),
        (byte_level(*(symbol for symbol in BYTES if symbol != "Ċ")), True),
        (byte_level("<unk>", unk_token="<unk>"), False),
        (bpe("a", "b"), True),
        (bpe(*FALLBACK, byte_fallback=True), False),
        (bpe(*FALLBACK), True),
        (bpe(*FALLBACK[1:], byte_fallback=True), True),
        (unigram(2), False),
    ],
)
def test_one_that_drops_text_is_named(
    tokenizer: Tokenizer, drops: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = saved(tokenizer, tmp_path)
    check_tokenizer(spec)
    told = capsys.readouterr().err
    assert (f"warning: {spec}: has neither a token for every byte nor an unknown token" in told) == drops
    assert bool(told) == drops
    losses = [code for code in range(0x800) if not tokenizer.encode(chr(code)).ids]
    assert bool(losses) == drops


def test_a_check_leaves_truncation_as_it_is() -> None:
    tokenizer = byte_level(*BYTES)
    tokenizer.enable_truncation(7)
    check_spelling("cut", tokenizer)
    assert len(tokenizer.encode(PROBE).ids) == 7


def test_unknown_tokens_are_counted_and_a_corpus_without_the_count_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = Tokenizer(models.WordLevel({**WORDS, "<unk>": 3}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    spec = saved(words, tmp_path)
    texts = [" ".join("ab?a"[(i + j) % 4] for j in range(20 + i)) for i in range(40)]
    made = [Document(f"d{i}", text, "any") for i, text in enumerate(texts)]
    settings = PrepareSettings(tokenizer=spec, length=16, order="random")

    def prepared():
        return prepare_documents(tmp_path / "corpus", lambda _: made, {"all": "1"}, settings)

    corpus = prepared()
    unknown, tokens = "".join(texts).count("?"), sum(len(text.split()) for text in texts)
    assert inspect_corpus(corpus)["tokens"]["unknown"] == unknown
    warned = f"warning: {unknown} of {tokens:,} tokens ({100 * unknown / tokens:.3g} %) are unknown (<unk>): "
    assert capsys.readouterr().err.count(warned) == 1
    for path in (tmp_path / "corpus" / name / "manifest.json" for name in ("tokens", ".")):
        manifest = json.loads(path.read_text())
        del manifest["manifest"]
        counts = manifest["counts"] if "counts" in manifest else manifest["stages"]["tokens"]["counts"]
        assert counts.pop("unknown") == unknown
        write_manifest(path, manifest)
    older = open_corpus(tmp_path / "corpus")
    assert inspect_corpus(older)["tokens"]["unknown"] is None
    (tmp_path / "corpus" / "manifest.json").unlink()
    assert prepared().manifest == older.manifest
    assert "unknown" not in capsys.readouterr().err
