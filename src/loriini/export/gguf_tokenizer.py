"""Tokenizers as the metadata of a GGUF file."""

import json
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from loriini.common.errors import InputError

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""llama.cpp's types of tokens."""

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
OTHER_BPE = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")
"""Settings of a BPE that GPT-2's does not have."""


@dataclass(frozen=True)
class GgufVocabulary:
    """Token texts and types by id, and merges in their order, each two texts with a space between."""

    tokens: list[str]
    types: list[int]
    merges: list[str]


def gguf_vocabulary(tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> GgufVocabulary:
    """The vocabulary of a byte-level BPE that splits text as GPT-2 does; ids up to `vocab_size` are filled.

    InputError for any other tokenizer. llama.cpp's own converter knows published ones; it recognises them by
    a hash of what they make of a test string, which no newly trained tokenizer can match.
    """
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    if not _splits_as_gpt2(parts) or tokenizer.num_special_tokens_to_add():
        raise InputError(
            "its tokenizer is not a byte-level BPE that splits text as GPT-2 does; use --to llama or --to "
            "mixtral, and llama.cpp's own convert_hf_to_gguf.py on that folder"
        )
    if not parts["model"]["merges"]:
        raise InputError(
            "its tokenizer has bytes alone and merges none, which llama.cpp does not load; use --to llama or "
            "--to mixtral"
        )
    texts = {i: text for text, i in parts["model"]["vocab"].items()}
    types = dict.fromkeys(texts, NORMAL)
    for added in parts["added_tokens"]:
        texts[added["id"]] = added["content"]
        types[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    return GgufVocabulary(
        tokens=[texts.get(i, f"[UNUSED{i}]") for i in range(vocab_size)],
        types=[types.get(i, UNUSED) for i in range(vocab_size)],
        merges=[" ".join(pair) for pair in parts["model"]["merges"]],
    )


def _splits_as_gpt2(parts: dict[str, Any]) -> bool:
    splits, model = parts["pre_tokenizer"] or {}, parts["model"]
    return (
        model["type"] == "BPE"
        and not any(model.get(name) for name in OTHER_BPE)
        and parts["normalizer"] is None
        and all(splits.get(name) == value for name, value in BYTE_LEVEL.items())
    )
