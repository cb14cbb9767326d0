from pathlib import Path

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from loriini.data.prepare.tokenized import cached_tokenizer
from loriini.data.prepare.tokenized.cached_tokenizer import CHUNKS, CachedTokenizer

EOS = "<|endoftext|>"
PIECES = [
    *("the", "don", "'t", "'re", "'", "''", "12", "3.4", "a_b", "()", "{", "}", "://", "…", "—", "\N{BOM}"),
    *(" ", "  ", "\n", "\r\n", "\t", "\n\n  ", "\x0b", "\x1c", "\x1f", "\x85", "\xa0", "\u2003", "\u3000"),
    *("é", "e\u0301", "naïve", "Straße", "日本", "語", "ไทย", "٣", "½", "²", "😀", "\u200d", "\x00", "\x7f"),
    EOS,
]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A byte-level BPE whose merges cross every border of words that the training lets them cross."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(600), trainer)
    return tokenizer


def texts(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(PIECES, rng.integers(0, 30))) for _ in range(count)]


def saved(tokenizer: Tokenizer, folder: Path) -> Path:
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.mark.parametrize("cached", [0, 1 << 21])
def test_chunks_give_the_ids_of_whole_texts(
    cached: int, gpt2: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_tokenizer, "CACHED_CHARACTERS", cached)
    encode = CachedTokenizer(saved(gpt2, tmp_path), np.uint16)
    assert encode.in_chunks
    for seed in (1, 2):
        batch = texts(400, seed)
        assert encode(batch) == encode.encode_whole(batch)
    assert bool(encode.cache) == bool(cached)


def test_chunks_are_the_whole_text_in_order() -> None:
    for text in texts(200, 3):
        assert "".join(CHUNKS.findall(text)) == text
    assert CHUNKS.findall("The lory, I'm told: eats\n  fruit.") == [
        *("The", " lory", ",", " I", "'m", " told", ":", " eats", "\n  fruit", ".")
    ]


def test_other_tokenizers_encode_whole_texts(gpt2: Tokenizer, tmp_path: Path) -> None:
    changed = [Tokenizer.from_str(gpt2.to_str()) for _ in range(4)]
    changed[0].normalizer = normalizers.NFC()
    changed[1].pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    changed[2].add_tokens(["lory, eats"])
    by_lines = pre_tokenizers.Split(Regex(r"[^\n]+|\n"), "isolated")
    changed[3].pre_tokenizer = pre_tokenizers.Sequence(
        [by_lines, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    for tokenizer in changed:
        encode = CachedTokenizer(saved(tokenizer, tmp_path), np.uint16)
        assert not encode.in_chunks
        batch = ["the lory, eats 'fruit", "e\u0301 the"]
        whole = [np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.uint16) for text in batch]
        assert encode(batch) == [ids.tobytes() for ids in whole]
