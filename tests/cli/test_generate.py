"""A prompt and what follows it."""

import re
from io import StringIO

import pytest

from cli.calls import Ended, Made, assert_refused, call
from loriini.evaluate.samples import Write


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
    ended = call(capsys, "generate", made.run, "--prompt", "the owl", "--max-new-tokens", 64)
    assert ended.code == 0
    assert re.fullmatch(r"warning: --max-new-tokens 64: the context has room for \d+; beyond .*\n", ended.err)


def test_generate_continues_each_line_until_the_input_ends(
    made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    how = ("--max-new-tokens", 4, "--top-p", 0.9, "--seed", 2)
    lines = ("the owl", "", "an awl")
    alone = [call(capsys, "generate", made.run, "--prompt", line, *how).out for line in lines]
    monkeypatch.setattr("sys.stdin", StringIO("\n".join(lines)))
    assert call(capsys, "generate", made.run, "--interactive", *how) == Ended(0, "".join(alone), "")
    monkeypatch.setattr("sys.stdin", StringIO("the owl"))
    assert call(capsys, "generate", made.run, "--prompt", "-", *how).out == alone[0]


def test_an_interrupt_ends_one_continuation(
    made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(model: object, tokenizer: object, prompt: str, how: object, write: Write) -> None:
        write(" and")
        if prompt == "one":
            raise KeyboardInterrupt

    monkeypatch.setattr("loriini.evaluate.samples.continue_text", interrupted)
    monkeypatch.setattr("sys.stdin", StringIO("\n".join(("one", "the owl " * 99, "two"))))
    ended = call(capsys, "generate", made.run, "--interactive")
    assert (ended.code, ended.out) == (0, "one and\ntwo and\n")
    assert re.fullmatch(r"warning: the prompt has \d+ tokens, the context 64; shorten it\n", ended.err)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give --prompt TEXT or --interactive, one of them"),
        (("--prompt", "a", "--interactive"), "give --prompt TEXT or --interactive, one of them"),
        (("--prompt", "a", "--temperature", 0), "--temperature 0: give more than 0, or --greedy"),
        (("--prompt", "the owl " * 99), "tokens, the context 64; shorten it"),
        (
            ("--prompt", "a", "--greedy", "--top-p", 0.5),
            "--top-p: is for sampling; leave it out, or --greedy",
        ),
        (("--prompt", "a", "--greedy", "--seed", 0), "--seed: is for sampling; leave it out, or --greedy"),
        (("--prompt", "a", "--label", "z"), "--label z: this model does not route by label; leave it out"),
    ],
)
def test_what_cannot_be_generated_is_refused(
    options: tuple[object, ...], words: str, made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(call(capsys, "generate", made.run, *options), words)
