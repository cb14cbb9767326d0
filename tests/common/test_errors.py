import pickle

from hypothesis import given
from hypothesis import strategies as st

from loriini.common.errors import InputError, printable


@given(st.text(st.characters()))
def test_printable_text_is_one_line_without_control_characters(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    shown.encode()
    if text.isprintable():
        assert shown == text


def test_an_error_is_printable_and_survives_a_pipe() -> None:
    error = InputError("a\r\nb\x1b]0;title\x07.jsonl: \u202etxt")
    assert str(error) == r"a\r\nb\x1b]0;title\x07.jsonl: \u202etxt"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
