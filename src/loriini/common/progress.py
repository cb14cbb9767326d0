"""Progress and warnings on standard error: bars on a terminal, else a line every few seconds."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from datetime import timedelta
from functools import cache, partial
from threading import Event, Thread
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from loriini.common.errors import printable

SECONDS_BETWEEN_LINES = 10.0

console = Console(stderr=True)
_display: ContextVar[Progress | None] = ContextVar("display", default=None)
"""The display of the outermost stage in progress."""


class Advance(Protocol):
    """Count `count` more units as done and show `note` next to the count.

    The first call may count the work of an earlier attempt: it is left out of the speed.
    """

    def __call__(self, count: int = 1, note: str = "") -> None: ...


def no_progress(count: int = 1, note: str = "") -> None:
    """An `Advance` that reports nothing."""


class _Count(ProgressColumn):
    """Units done, of their total if known; empty if it is unknown and none is done."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text(f"{task.completed:,.0f}" if task.completed else "")
        return Text(f"{task.completed:,.0f}/{task.total:,.0f}" if task.total else "")


class _Time(ProgressColumn):
    """Time elapsed and, where it can be estimated, time left."""

    def render(self, task: Task) -> Text:
        seconds = task.finished_time if task.finished else task.elapsed
        elapsed, left = str(timedelta(seconds=round(seconds or 0))), task.time_remaining
        return Text(f"{elapsed}, {timedelta(seconds=left)} left" if left else elapsed)


@contextmanager
def progress(name: str, total: int | None = None, shown: bool = True) -> Iterator[Advance]:
    """Report a stage's progress: `with progress("tokens", total) as advance: advance(n, "12k tokens/s")`.

    Args:
        name: the stage's name.
        total: units of work; None when unknown.
        shown: False reports nothing, as in ranks other than 0.

    On a terminal a bar is shown, which stays when the stage ends. Elsewhere a line is printed every
    SECONDS_BETWEEN_LINES and at the end. A stage inside another one leaves no bar and no last line.
    """
    outer, name = _display.get(), printable(name)
    if not shown:
        yield no_progress
        return
    on_terminal = console.is_terminal and not console.is_dumb_terminal
    display = outer or _new_display(on_terminal)
    stage = display.add_task(name, total=total, note="")
    print_line = partial(_print_line, display, stage)

    def advance(count: int = 1, note: str = "") -> None:
        display.update(stage, advance=count, note=printable(note))

    token = _display.set(display)
    try:
        with (
            nullcontext() if outer else display,
            nullcontext() if on_terminal else repeated(SECONDS_BETWEEN_LINES, print_line),
        ):
            yield advance
            if _find(display, stage).total is None:
                display.update(stage, total=_find(display, stage).completed)
        if not (outer or on_terminal):
            print_line()
    finally:
        _display.reset(token)
        if outer:
            display.remove_task(stage)


@contextmanager
def repeated(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    """While inside, call a function every `seconds` seconds in the background."""
    over = Event()

    def run() -> None:
        while not over.wait(seconds):
            call()

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Turn transformers' progress bars off, and on again if they were."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def announce(name: str, names: Sequence[str], kind: str = "stage") -> None:
    """Print which part of a job begins, such as `stage 2/5: tokens`."""
    inform(f"{kind} {names.index(name) + 1}/{len(names)}: {name}")


def inform(message: object) -> None:
    """Print a line on standard error about work in progress."""
    _print(printable(message))


def warn(message: object) -> None:
    """Print a line on standard error about a problem that does not stop the work."""
    style = "yellow" if console.is_terminal else None  # asked at each call: stderr may be redirected later
    _print(f"warning: {printable(message)}", style)


warn_once = cache(warn)


def _new_display(on_terminal: bool) -> Progress:
    return Progress(
        TextColumn("{task.description:<12}", markup=False),
        BarColumn(bar_width=12),
        _Count(),
        _Time(),
        TextColumn("{task.fields[note]}", markup=False),
        console=console,
        disable=not on_terminal,
        refresh_per_second=4,
        speed_estimate_period=3600,
    )


def _print_line(display: Progress, stage: TaskID) -> None:
    task = _find(display, stage)
    shown = (task.description, _Count()(task), task.fields["note"], _Time()(task))
    _print("  ".join(text for text in map(str, shown) if text))


def _find(display: Progress, stage: TaskID) -> Task:
    return next(task for task in display.tasks if task.id == stage)


def _print(line: str, style: str | None = None) -> None:
    console.print(line, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)
