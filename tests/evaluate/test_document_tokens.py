"""How many bytes each token spells, and bits per byte of the predictions that count."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from loriini.data.read.document import Document
from loriini.evaluate.document_tokens import (
    DocumentTokens,
    document_ids,
    document_tokens,
    sizes_by_offsets,
)
from loriini.evaluate.heldout import HeldOut, tokenize_by_domain
from loriini.evaluate.perplexity import evaluate, score_tokens
from tiny import LENGTH, SEGMENT, random_ids, tiny_model

TEXTS = [
    "a café, a café, a 中 and a 文",
    "  two\n\n\tlines 😀 ",
    " ",
    "",
    "x<eos>y",
    "e\u0301t\u00e9 ▁ <0x41> Ġ",
]


def wrapped(tokenizer: Tokenizer, **roles: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", **roles)


def byte_level(prefix: bool = False, normalizer: Any = None, trim: bool = False) -> PreTrainedTokenizerFast:
    """A BPE of bytes with few merges: one of two characters of three bytes is a token, the other is not."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=264, special_tokens=["<eos>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["a café 中"] * 9, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    if trim:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return wrapped(tokenizer)


def sentencepiece(fallback: bool = True) -> PreTrainedTokenizerFast:
    """A unigram model as SentencePiece has it, with a space before the text and perhaps tokens of bytes."""
    scores = {"<unk>": 0.0, "<eos>": 0.0, "▁": -2.0, "▁a": -1.0, "▁ca": -1.0, "f": -2.0, "é": -2.0, ",": -2.0}
    if fallback:
        scores |= {f"<0x{byte:02X}>": -9.0 for byte in range(256)}
    tokenizer = Tokenizer(models.Unigram([*scores.items()], unk_id=0, byte_fallback=fallback))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return wrapped(tokenizer, unk_token="<unk>")


def word_piece() -> PreTrainedTokenizerFast:
    """Words in lower case without accents or the blanks between them, as BERT has them."""
    vocabulary = {word: i for i, word in enumerate(["[UNK]", "<eos>", "he", "##llo", "a", "中", "!"])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    return wrapped(tokenizer, unk_token="[UNK]")


def tokens_of(text: str, tokenizer: PreTrainedTokenizerBase) -> DocumentTokens:
    return document_tokens(Document("d", text, "a"), tokenizer)


MAKERS = {
    "byte level": byte_level,
    "byte level after a space": lambda: byte_level(prefix=True),
    "byte level, composed": lambda: byte_level(normalizer=normalizers.NFC()),
    "byte level, lower case": lambda: byte_level(normalizer=normalizers.Lowercase(), trim=True),
    "SentencePiece": sentencepiece,
    "SentencePiece without bytes": lambda: sentencepiece(fallback=False),
    "WordPiece": word_piece,
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("text", [*TEXTS, *(text.upper() for text in TEXTS)])
def test_the_tokens_of_a_document_spell_its_bytes(name: str, text: str) -> None:
    tokenizer = MAKERS[name]()
    found = tokens_of(text, tokenizer)
    assert found.ids == document_ids(Document("d", text, "a"), tokenizer)
    assert len(found.sizes) == len(found.ids)
    assert min(found.sizes, default=0) >= 0
    if found.ids:
        assert sum(found.sizes) == len(text.encode())
    if name.startswith("byte level"):
        assert found.exact


def test_tokens_that_change_the_text_stand_for_its_characters() -> None:
    found = tokens_of("  HELLO\n\nÁ中! ", word_piece())
    assert (found.sizes, found.exact) == ([4, 3, 4, 3, 2], True)  # he ##llo a 中 !
    composed = tokens_of("ca\u0301", byte_level(normalizer=normalizers.NFC()))
    assert (sum(composed.sizes), composed.sizes[0], composed.exact) == (4, 1, True)


def test_a_token_has_only_the_bytes_that_no_token_before_it_has() -> None:
    assert sizes_by_offsets("abcé d", [(0, 2), (0, 0), (1, 3), (3, 4), (3, 4)]) == ([2, 0, 1, 2, 2], False)
    assert sizes_by_offsets(" é", [(1, 2), (0, 2)]) == ([3, 0], True)
    assert sizes_by_offsets("\n", []) == ([], True)


@pytest.mark.parametrize("text", ["hello zebra", "hello \x00 a", "a\x00"])
def test_text_that_no_token_spells_is_not_exact(text: str) -> None:
    found = tokens_of(text, word_piece())
    assert (sum(found.sizes), found.exact) == (len(text.encode()), False)
    assert not tokens_of("a zebra", sentencepiece(fallback=False)).exact


def test_a_tokenizer_without_offsets_estimates_bytes() -> None:
    found = tokens_of("é 中", ByT5Tokenizer())
    assert (found.sizes, found.exact) == ([1] * 6, False)


def test_each_token_of_held_out_text_has_its_bytes() -> None:
    documents = [Document(str(i), text, "a") for i, text in enumerate(["a café", "中 é a"])]
    text = tokenize_by_domain(documents, byte_level(), 4)["a"]
    row = [
        (i, n)
        for d in documents
        for i, n in [*zip(*document_tokens(d, byte_level())[:2], strict=True), (0, 0)]
    ]
    kept = row[: text.ids.numel()]
    assert text.ids.flatten().tolist() == [i for i, _ in kept]
    assert text.bytes.flatten().tolist() == [n for _, n in kept]
    assert text.bytes_per_token == sum(n for _, n in kept) / len(kept)
    unknown = [Document("0", "hello zebra", "a"), Document("1", "hello a", "b")]
    heldout = tokenize_by_domain(unknown, word_piece(), 2)
    assert (heldout["a"].bytes, heldout["b"].bytes.tolist()) == (None, [[2, 3, 2]])


def predicted(text: HeldOut, model: Any, skip: int, masked: bool) -> Iterator[tuple[float, int]]:
    """The naive twin: the loss in nats and the bytes of each prediction that counts, one at a time."""
    for row in range(len(text.ids)):
        inputs = {"position_ids": text.positions[row : row + 1, :-1]} if masked else {}
        losses = score_tokens(model, text.ids[row : row + 1], "fp32", **inputs).loss[0].tolist()
        for place, loss in enumerate(losses):
            position = int(text.positions[row, place]) if masked else place
            if position >= skip:
                yield loss, int(text.bytes[row, place + 1])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("skip", [0, 1, SEGMENT])
def test_bits_per_counted_byte_are_those_of_a_loop(skip: int, masked: bool) -> None:
    tokenizer = byte_level()
    documents = [Document(str(i), text * 2, "a") for i, text in enumerate(TEXTS[:3])]
    heldout = tokenize_by_domain(documents, tokenizer, 2 * LENGTH)
    assert tokenizer.eos_token_id in heldout["a"].ids[:, 1:]  # predicted, and spells nothing
    model = tiny_model("lory", vocab_size=len(tokenizer))
    results = evaluate(model, heldout, skip, precision="fp32", document_mask=masked)
    losses, sizes = zip(*predicted(heldout["a"], model, skip, masked), strict=True)
    assert results["tokens"]["a"] == len(losses)
    assert results["bytes"]["a"] == sum(sizes) != len(sizes)
    expected = sum(losses) / math.log(2) / sum(sizes)
    assert results["bits_per_byte_counted"]["a"] == pytest.approx(expected, rel=1e-5)


def test_all_domains_tell_bits_per_counted_byte_or_none_does() -> None:
    ids = random_ids(2, LENGTH + 1)
    heldout = {"a": HeldOut(ids, 1.0, bytes=torch.zeros_like(ids)), "b": HeldOut(ids, 1.0)}
    model = tiny_model("mixtral")
    assert not {"bytes", "bits_per_byte_counted"} & evaluate(model, heldout).keys()
    nothing = evaluate(model, {"a": heldout["a"]})
    assert (nothing["bytes"], nothing["bits_per_byte_counted"]) == ({"a": 0}, {"a": None})
