"""Progress on a terminal's standard error; nothing at all when it is piped."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

console = Console(stderr=True)


class Advance(Protocol):
    """Move a progress bar by `count` and show `note` behind it."""

    def __call__(self, count: int = 1, note: str = "") -> None:
        """Count `count` more as done."""


@contextmanager
def progress(name: str, total: int | None = None, shown: bool = True) -> Iterator[Advance]:
    """A bar for one stage: `with progress("tokens", total) as advance: ... advance(n, "12k tokens/s")`."""
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(
        *columns, console=console, disable=not (shown and console.is_terminal), refresh_per_second=4
    ) as bar:
        task = bar.add_task(name, total=total, note="")

        def advance(count: int = 1, note: str = "") -> None:
            bar.update(task, advance=count, note=note)

        yield advance


def warn(message: str) -> None:
    """One line on standard error, piped or not: something was passed over and work goes on."""
    console.print(f"warning: {message}", style="yellow", markup=False, highlight=False, soft_wrap=True)
