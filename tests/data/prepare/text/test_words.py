import re

import pytest

from loriini.data.prepare.text.words import WORDS_AND_SIGNS, words


@pytest.mark.parametrize(
    ("text", "spaced", "with_signs"),
    [
        ("one, two_2  3.5", ["one,", "two_2", "3.5"], ["one", ",", "two_2", "3", ".", "5"]),
        ("naïve café", ["naïve", "café"], ["naïve", "café"]),
        ("我喜欢tea。", ["我", "喜", "欢", "tea。"], ["我", "喜", "欢", "tea", "。"]),
        ("ひらがな カナ", list("ひらがなカナ"), list("ひらがなカナ")),
        (" \n", [], []),
    ],
)
def test_words(text: str, spaced: list[str], with_signs: list[str]) -> None:
    assert words(text) == spaced
    assert re.findall(WORDS_AND_SIGNS, text) == with_signs
