"""A prompt and what follows it."""

import re

import pytest

from cli.calls import Made, assert_refused, call


def test_generate_prints_the_prompt_and_what_follows(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = ("generate", made.run, "--prompt", "the owl", "--max-new-tokens", 8)
    for more in ((), ("--greedy",), ("--routing", "segment"), ("--seed", 3, "--device", "cpu")):
        ended = call(capsys, *prompt, *more)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith("the owl")
        assert call(capsys, *prompt, *more) == ended


def test_a_text_that_outgrows_the_context_is_warned_of(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = call(capsys, "generate", made.run, "--prompt", "the owl", "--max-new-tokens", 63)
    assert ended.code == 0
    assert re.fullmatch(r"warning: --max-new-tokens 63: the context has room for \d+; beyond .*\n", ended.err)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--prompt"),
        (("--prompt", "a", "--temperature", 0), "--temperature 0: give more than 0, or --greedy"),
        (("--prompt", "the owl " * 99), "tokens, the context 64; shorten it"),
        (
            ("--prompt", "a", "--greedy", "--top-p", 0.5),
            "--top-p: is for sampling; leave it out, or --greedy",
        ),
        (("--prompt", "a", "--label", "z"), "--label z: this model does not route by label; leave it out"),
    ],
)
def test_what_cannot_be_generated_is_refused(
    options: tuple[object, ...], words: str, made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(call(capsys, "generate", made.run, *options), words)
