"""Progress on a terminal and elsewhere, and warnings that show foreign text as it is."""

import re
import time
from collections.abc import Callable
from io import StringIO

import pytest
from rich.console import Console

from loriini.common import progress as module
from loriini.common.progress import inform, progress, warn

TIME = r"\d:\d\d:\d\d"


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., StringIO]:
    """Send progress to a string that is a terminal or not."""

    def send(terminal: bool, seconds: float = 1000) -> StringIO:
        output = StringIO()
        monkeypatch.setenv("TERM", "xterm")
        console = Console(file=output, force_terminal=terminal, width=100)
        monkeypatch.setattr(module, "console", console)
        monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", seconds)
        return output

    return send


def last_screen(output: StringIO) -> list[str]:
    """The lines of the last refresh, without colours and cursor movements."""
    return lines_of(output.getvalue().rsplit("\x1b[2K", 1)[-1])


def lines_of(printed: str) -> list[str]:
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed)
    return [line.rstrip() for line in plain.splitlines() if line.strip()]


def wait_for(lines: int, output: StringIO) -> None:
    deadline = time.monotonic() + 60
    while output.getvalue().count("\n") < lines:
        assert time.monotonic() < deadline, output.getvalue()
        time.sleep(0.001)


def test_elsewhere_a_short_stage_is_one_line(printed: Callable[..., StringIO]) -> None:
    output = printed(terminal=False)
    with progress("tokens", 12_000) as advance:
        for _ in range(6):
            advance(2_000, "[/] loss 2\n:bell:")
        assert not output.getvalue()
    assert re.fullmatch(rf"tokens  12,000/12,000  \[/\] loss 2\\n:bell:  {TIME}\n", output.getvalue())


def test_elsewhere_a_long_stage_is_a_line_every_few_seconds(printed: Callable[..., StringIO]) -> None:
    output = printed(terminal=False, seconds=0.05)
    with progress("train", 10**9) as advance:
        advance(10)
        time.sleep(0.01)
        advance(2, "loss 3.2")
        wait_for(output.getvalue().count("\n") + 2, output)
    *_, line, last = output.getvalue().splitlines()
    assert re.fullmatch(rf"train  12/1,000,000,000  loss 3.2  {TIME}, [\d,]+ days.* left", line)
    assert last.startswith("train  12/1,000,000,000")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_stage_inside_another_leaves_nothing(terminal: bool, printed: Callable[..., StringIO]) -> None:
    output = printed(terminal)
    with progress("train", 2) as outer:
        for _ in range(2):
            with progress("evaluation", 5) as inner:
                inner(5)
            outer()
    assert [line.split()[0] for line in last_screen(output)] == ["train"]


def test_a_stage_that_fails_prints_no_last_line(printed: Callable[..., StringIO]) -> None:
    output = printed(terminal=False)
    with pytest.raises(ValueError, match="no"), progress("tokens", 5):
        raise ValueError("no")
    with progress("tokens", 5, shown=False) as advance:
        advance(5)
    assert not output.getvalue()
    assert module._display.get() is None


@pytest.mark.parametrize("count", [0, 7])
def test_on_a_terminal_an_unknown_total_pulses_and_ends_full(
    count: int, printed: Callable[..., StringIO]
) -> None:
    output = printed(terminal=True)
    with progress("read") as advance:
        advance(count)
        assert module._display.get().tasks[0].total is None  # type: ignore[union-attr]
    assert "?" not in output.getvalue().replace("\x1b[?25", "")
    (line,) = last_screen(output)
    assert re.fullmatch(rf"read +━+ {'7/7' if count else ''} *{TIME}", line)


@pytest.mark.parametrize(("show", "prefix"), [(inform, ""), (warn, "warning: ")])
def test_a_message_is_one_line_that_the_terminal_shows_as_it_is(
    show: Callable[[str], None], prefix: str, printed: Callable[..., StringIO]
) -> None:
    output = printed(terminal=False)
    show("a\nb\x1b[31m\u202e\ud800 [/] :bell: naïve 中文 " + "x" * 200)
    shown = prefix + r"a\nb\x1b[31m\u202e\ud800 [/] :bell: naïve 中文 " + "x" * 200
    assert output.getvalue() == shown + "\n"


def test_a_process_that_was_forked_below_a_terminal_writes_no_colours_into_its_log(
    printed: Callable[..., StringIO],
) -> None:
    output = printed(terminal=True)
    module.console._force_terminal = False  # as after its stream became a file
    warn("no luck")
    assert output.getvalue() == "warning: no luck\n"
