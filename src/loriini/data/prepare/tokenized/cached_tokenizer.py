"""Encoding texts as token ids, with a cache for byte-level BPE tokenizers like GPT-2's.

GPT-2's tokenizer splits a text into words with a regular expression, which takes most of the time, and
encodes each word separately. Here a text is cut only where that expression always ends a word, whatever the
surrounding text. The chunks, most of them one word, are looked up, and only new ones are encoded.
"""

import json
import re
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike
from tokenizers import Tokenizer

from loriini.common.tokenizers import splits_as_gpt2

CACHED_CHARACTERS = 1 << 21
"""The cache is emptied when it holds more: about 300,000 chunks, 60 MB."""

_BLANK, _SIGN = r" \t\r\n", r"!-/:-@\[-`{-~"
_CUT = rf"(?<=[!-~])(?=[{_BLANK}])|(?<=[A-Za-z0-9])(?=[{_SIGN}])|\Z"
CHUNKS = re.compile(
    rf"[{_BLANK}]*+[A-Za-z0-9]++(?=[{_BLANK}!-~])|[{_SIGN}]++(?=[{_BLANK}])|(?s:.)+?(?:{_CUT})"
)
"""Chunks that end before a blank after any other character, or before a sign after a letter or digit, all
ASCII: there, no Unicode table or lookahead matters. The first two alternatives only make common cases fast.
"""


class CachedTokenizer:
    """Encodes texts without special tokens; text that spells a special token is encoded as text.

    Args:
        path: a `tokenizer.json`.
        dtype: type of the ids.
    """

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.library = Tokenizer.from_file(str(path))
        self.library.no_truncation()
        self.library.no_padding()
        self.library.encode_special_tokens = True
        self.dtype = dtype
        contents = json.loads(self.library.to_str())
        model = contents["model"]
        # of the token for text that the vocabulary does not spell; None if there is none
        self.unknown_id: int | None = (
            model["unk_id"] if model["type"] == "Unigram" else model["vocab"].get(model["unk_token"])
        )
        special = all(token["special"] for token in contents["added_tokens"])
        self.in_chunks = special and splits_as_gpt2(contents)
        self.cache: dict[str, bytes] = {}
        self.cached_characters = 0

    def __call__(self, texts: list[str]) -> list[bytes]:
        """Each text's ids, as the bytes of an array of `dtype`."""
        if not self.in_chunks:
            return self.encode_whole(texts)
        chunked = [CHUNKS.findall(text) for text in texts]
        new = list(set(chain.from_iterable(chunked)).difference(self.cache))
        self.cache.update(zip(new, self.encode_whole(new), strict=True))
        encoded = [b"".join(map(self.cache.__getitem__, chunks)) for chunks in chunked]
        self.cached_characters += sum(map(len, new))
        if self.cached_characters > CACHED_CHARACTERS:
            self.cache.clear()
            self.cached_characters = 0
        return encoded

    def encode_whole(self, texts: list[str]) -> list[bytes]:
        """The naive twin: each text encoded by the library as a whole."""
        encodings = self.library.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, self.dtype).tobytes() for encoding in encodings]
