"""Tokenizers in folders: their files, their random choices, and whether they split text as GPT-2 does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loriini.common.progress import warn_once

TOKENIZER_FILES = (
    "token*",
    "*config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges*",
    "encoder.json",
    "*.model",
)
"""Files of a tokenizer in the formats of `tokenizers`, SentencePiece and GPT-2, or that name its EOS."""
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
OTHER_BPE = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")
"""Settings of a BPE model that GPT-2's does not use."""


def holds_tokenizer(folder: Path) -> bool:
    """Whether a folder has a tokenizer, not only settings of one."""
    return (folder / "tokenizer.json").exists() or (folder / "tokenizer.model").exists()


def without_chance(tokenizer: Any, source: object) -> None:
    """Turn off random choices in a tokenizer of, or built on, the library `tokenizers`; warns once."""
    model = getattr(getattr(tokenizer, "backend_tokenizer", tokenizer), "model", None)
    for name in ("dropout", "alpha", "nbest_size"):  # of BPE, and of sampling in newer Unigram
        if getattr(model, name, None):
            setattr(model, name, None)
            warn_once(f"{source}: its tokenizer's {name}, which draws other ids at every call, is off")


def splits_as_gpt2(contents: Mapping[str, Any]) -> bool:
    """Whether a `tokenizer.json` is a byte-level BPE that splits text into words as GPT-2 does."""
    words, model = contents["pre_tokenizer"] or {}, contents["model"]
    return (
        model["type"] == "BPE"
        and not any(model.get(name) for name in OTHER_BPE)
        and contents["normalizer"] is None
        and all(words.get(name) == value for name, value in BYTE_LEVEL.items())
    )
