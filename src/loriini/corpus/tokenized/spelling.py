"""Text that a tokenizer cannot spell: it becomes unknown tokens, is dropped, or ends the encoding."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers

from loriini.errors import InputError
from loriini.progress import warn

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
    fallback = {f"<0x{byte:02X}>" for byte in set(PROBE.encode())}
    whole = [alphabet, fallback] if model["byte_fallback"] else [alphabet]
    return not any(symbols <= model["vocab"].keys() for symbols in whole)
