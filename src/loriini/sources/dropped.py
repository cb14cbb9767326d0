"""What is left out of a corpus, told one by one."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from loriini.errors import InputError


@dataclass(frozen=True)
class Dropped:
    """A document that is left out: its id where it had one, its place where known, and why."""

    id: str | None
    where: str | None
    reason: str
    """What is counted: the same words for all of a kind."""
    detail: str = ""
    """What only this one shows."""


OnDrop = Callable[[Dropped], None]
"""Who is told of what is left out."""


def ignore_dropped(dropped: Dropped) -> None:
    """Keep no record of what is dropped."""


def count_dropped(drop: OnDrop) -> tuple[OnDrop, Counter[str]]:
    """As `drop`, beside how many it was told of by reason."""
    left_out = Counter[str]()

    def count(dropped: Dropped) -> None:
        left_out[dropped.reason] += 1
        drop(dropped)

    return count, left_out


def describe_dropped(left_out: Mapping[str, int]) -> str:
    """How many are left out, as words."""
    return ", ".join(f"{count:,} left out: {reason}" for reason, count in left_out.items())


def no_documents(where: object, left_out: Mapping[str, int]) -> InputError:
    """What is raised for an input without any document, with all that was left out of it."""
    told = f" ({describe_dropped(left_out)})" if left_out else ""
    return InputError(
        f"{where}: no document found{told}; give .jsonl, .csv, .tsv, .parquet, .arrow, .warc or text files, "
        "and limits that leave some"
    )
