"""Text that a tokenizer cannot spell, or would take for its special tokens."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, pre_tokenizers

from loriini.common.errors import InputError
from loriini.common.grouping import grouped
from loriini.common.progress import warn

_CODES = (
    *range(0x801),
    *range(0x1000, 0x10000, 0x1000),
    0x10000,
    0x1F600,
    *range(0x40000, 0x110000, 0x40000),
)
PROBE = "".join(map(chr, _CODES))
"""Text with every byte that UTF-8 has: control characters, letters, signs, and places without a character."""


def contents_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """The contents of its `tokenizer.json`."""
    contents: dict[str, Any] = json.loads(tokenizer.to_str())
    return contents


def unknown_id(contents: Mapping[str, Any]) -> int | None:
    """The id of the token that stands for what the vocabulary does not spell; None without one."""
    model = contents["model"]
    found: int | None = (
        model["unk_id"] if model["type"] == "Unigram" else model["vocab"].get(model["unk_token"])
    )
    return found


BYTE_TOKEN = "<0x{:02X}>"
"""The name of a byte's token in SentencePiece's vocabularies."""


def keep_spellings_as_text(tokenizer: Tokenizer) -> None:
    """Make a tokenizer encode what spells its special, unknown and byte tokens as text, in place.

    `encode_special_tokens` only keeps added tokens from being found before the model, which may make them
    too: a BPE by merges, which are left out here, and all that look words up in their vocabulary, for which
    such words are cut before their last character.
    """
    contents = contents_of(tokenizer)
    model, unknown = contents["model"], unknown_id(contents)
    names = {token["content"] for token in contents["added_tokens"] if token["special"]}
    names |= set() if unknown is None else {tokenizer.id_to_token(unknown)}
    names &= tokenizer.get_vocab(with_added_tokens=False).keys()
    is_bpe, by_bytes = model["type"] == "BPE", model.get("byte_fallback", False)
    if is_bpe:
        made = names | {BYTE_TOKEN.format(byte) for byte in range(256) if by_bytes}
        _leave_out_merges(tokenizer, contents, made)
    if not is_bpe or model.get("ignore_merges"):
        spellings = [re.escape(name) for name in sorted(names) if len(name) > 1]
        spellings += ["<0x[0-9A-F]{2}>"] if by_bytes else []
        _cut_before(tokenizer, contents, _last_characters(spellings, whole=is_bpe))


def _leave_out_merges(tokenizer: Tokenizer, contents: Mapping[str, Any], made: Collection[str]) -> None:
    """Leave out the merges of a BPE that make one of these tokens."""
    model = contents["model"]
    merges = [pair for pair in model["merges"] if "".join(pair) not in made]
    if len(merges) < len(model["merges"]):
        changed = {**contents, "model": {**model, "merges": merges}}
        tokenizer.model = Tokenizer.from_str(json.dumps(changed)).model


def _cut_before(tokenizer: Tokenizer, contents: Mapping[str, Any], pattern: str) -> None:
    """Cut words before what the pattern matches, if they are not cut so already."""
    words = tokenizer.pre_tokenizer
    if pattern and json.dumps(pattern) not in json.dumps(contents["pre_tokenizer"]):
        cut = pre_tokenizers.Split(Regex(pattern), "merged_with_next")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, cut]) if words else cut


def _last_characters(spellings: Sequence[str], whole: bool) -> str:
    """A pattern of the last characters of spellings, anywhere or where one is the `whole` word.

    Each of them looks back only where it stands itself, so that other text costs nothing.
    """
    begins, ends = (r"\A", r"\z") if whole else ("", "")
    by_last = grouped(spellings, itemgetter(-1))
    looking_back = (
        f"{re.escape(last)}(?<={'|'.join(begins + spelling for spelling in ending)}){ends}"
        for last, ending in by_last.items()
    )
    return "|".join(looking_back)


def check_spelling(name: str, tokenizer: Tokenizer) -> None:
    """InputError for a tokenizer that fails at some text, a warning for one that drops some.

    Args:
        name: the tokenizer's, for the message.
        tokenizer: encodes PROBE.
    """
    try:
        tokenizer.encode(PROBE, add_special_tokens=False)
    except Exception as error:  # tokenizers raises bare Exception
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"{name}: cannot encode text that its vocabulary does not spell ({reason}); add its unknown "
            "token to the vocabulary, or use another tokenizer, for example bpe:8192"
        ) from error
    if _drops_text(contents_of(tokenizer)):
        warn(
            f"{name}: has neither a token for every byte nor an unknown token, so it drops characters that "
            "its vocabulary does not spell; use another tokenizer, for example bpe:8192"
        )


def warn_of_unknown(path: Path, unknown: int, tokens: int) -> None:
    """Warn if any of a corpus's tokens are unknown; `path` is that of its `tokenizer.json`."""
    if not unknown:
        return
    tokenizer = Tokenizer.from_file(str(path))
    found = unknown_id(contents_of(tokenizer))
    token = "" if found is None else tokenizer.id_to_token(found)
    warn(
        f"{unknown:,} of {tokens:,} tokens ({100 * unknown / tokens:.3g} %) are unknown ({token}): the "
        "tokenizer cannot spell all of this text; use another, for example bpe:8192"
    )


def _drops_text(contents: Mapping[str, Any]) -> bool:
    """Whether some text leaves no token: of a BPE without an unknown token and without all bytes."""
    model = contents["model"]
    if model["type"] != "BPE" or model["unk_token"] is not None:
        return False
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(PROBE)
    alphabet = {symbol for symbols, _ in spelled for symbol in symbols}
    fallback = {BYTE_TOKEN.format(byte) for byte in set(PROBE.encode())}
    whole = [alphabet, fallback] if model["byte_fallback"] else [alphabet]
    return not any(symbols <= model["vocab"].keys() for symbols in whole)
