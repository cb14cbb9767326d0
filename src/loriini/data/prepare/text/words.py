r"""Words of a text, for comparing texts by their words.

Thai, Lao, Burmese, Khmer, Japanese and Chinese are written without spaces: there every letter is a word.
"""

import re

UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
WORDS_AND_SIGNS = rf"(?u)[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]"
"""A regular expression for words, identifiers, numbers, and every other sign by itself."""

_SPACED = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def words(text: str) -> list[str]:
    """The words of a text, with the signs that touch them."""
    return _SPACED.findall(text)
