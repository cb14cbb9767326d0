"""Records and documents that are left out of a corpus."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from loriini.common.errors import InputError


@dataclass(frozen=True)
class Dropped:
    """A document that is left out: its id and place where known, and why."""

    id: str | None
    where: str | None
    reason: str
    """The same text for all documents dropped for one reason, by which they are counted."""
    detail: str = ""
    """Details of this document."""
    is_flaw: bool = False
    """Whether it would have ended the reading with `on_error="stop"`."""


OnDrop = Callable[[Dropped], None]


def ignore_dropped(dropped: Dropped) -> None:
    """Keep no record of what is dropped."""


def count_dropped(on_drop: OnDrop) -> tuple[OnDrop, Counter[str]]:
    """Wrap a callback; also returns a counter of its calls by reason."""
    counts = Counter[str]()

    def count(dropped: Dropped) -> None:
        counts[dropped.reason] += 1
        on_drop(dropped)

    return count, counts


def describe_dropped(counts: Mapping[str, int]) -> str:
    """Counts by reason as text."""
    return ", ".join(f"{count:,} left out: {reason}" for reason, count in counts.items())


def no_documents(where: object, counts: Mapping[str, int]) -> InputError:
    """The error for an input without documents, with the counts of what was dropped."""
    if counts:  # files of known formats were found, or the reason says what they are
        remedy = "correct what was left out, or give other files or limits"
        return InputError(f"{where}: no document found ({describe_dropped(counts)}); {remedy}")
    formats = ".jsonl, .csv, .tsv, .parquet, .arrow, .warc or text files"
    return InputError(f"{where}: no document found; give {formats}")
