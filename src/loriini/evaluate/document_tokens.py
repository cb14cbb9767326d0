"""The tokens of a document, and how many bytes of its text each of them spells."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple
from unicodedata import combining

import numpy as np
from transformers import PreTrainedTokenizerBase

from loriini.data.read.document import Document

AS_IN_TRAINING = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
"""How a tokenizer is called: what spells a special token is text."""


class DocumentTokens(NamedTuple):
    """A document's token ids, and the bytes of UTF-8 that each spells; together, those of the document.

    If not `exact`, the tokens do not determine the text, so their sizes are estimates.
    """

    ids: list[int]
    sizes: list[int]
    exact: bool


def document_ids(document: Document, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """A document's token ids, as in training."""
    ids: list[int] = tokenizer(document.text, **AS_IN_TRAINING)["input_ids"]
    return ids


def document_tokens(document: Document, tokenizer: PreTrainedTokenizerBase) -> DocumentTokens:
    """A document's token ids, as in training, and the bytes that each spells.

    A token has the bytes of the characters that it stands for (offsets). A character belongs to the first of
    several tokens; blanks and accents that the tokenizer drops belong to the token after them, or at the end
    to the last. Sizes are estimates if other characters are dropped, if a token is the unknown one, and for a
    tokenizer without offsets.
    """
    encoded = tokenizer(document.text, **AS_IN_TRAINING)
    ids = encoded["input_ids"]
    if not encoded.encodings:
        size = len(document.text.encode())
        reached = [size * i // max(1, len(ids)) for i in range(len(ids) + 1)]
        return DocumentTokens(ids, [end - start for start, end in pairwise(reached)], False)
    sizes, covered = sizes_by_offsets(document.text, encoded.encodings[0].offsets)
    return DocumentTokens(ids, sizes, covered and tokenizer.unk_token_id not in ids)


def sizes_by_offsets(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[list[int], bool]:
    """The bytes of each token's new characters with those before it that no token has, and whether all of
    these are blanks, or accents that were composed with their letters or left out.
    """
    starts_T, ends_T = np.array(offsets, np.int64).reshape(-1, 2).T
    reached_T = np.maximum.accumulate(np.append(0, ends_T))
    gaps_T = np.flatnonzero(starts_T > reached_T[:-1])
    gaps = zip(reached_T[gaps_T].tolist(), starts_T[gaps_T].tolist(), strict=True)
    dropped = "".join([text[start:end] for start, end in gaps]) + text[reached_T[-1] :]
    if offsets:
        reached_T[-1] = len(text)
    codes_C = np.frombuffer(text.encode("utf-32-le"), "<u4")
    bytes_C = 1 + (codes_C > 0x7F) + (codes_C > 0x7FF) + (codes_C > 0xFFFF)
    sizes: list[int] = np.diff(np.append(0, bytes_C.cumsum())[reached_T]).tolist()
    return sizes, all(character.isspace() or combining(character) for character in dropped)
