"""What is left out of a corpus, told one by one."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Dropped:
    """A document that is left out: its id where it had one, its place where known, and why."""

    id: str | None
    where: str | None
    reason: str
    """What is counted: the same words for all of a kind."""
    detail: str = ""
    """What only this one shows."""


Drop = Callable[[Dropped], None]
"""Who is told of what is left out."""


def unrecorded(dropped: Dropped) -> None:
    """Keep no record of what is dropped."""
