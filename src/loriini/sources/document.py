"""A text of a corpus, and the ways to have many of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from loriini.sources.dropped import Drop


@dataclass(frozen=True, slots=True)
class Document:
    """One text of a corpus, with a name of its own and the domain it counts towards."""

    id: str
    text: str
    domain: str


Read = Callable[[Drop], Iterable[Document]]
"""Makes documents, and tells its argument what it leaves out."""


@dataclass(frozen=True)
class Stream:
    """Documents that one task reads.

    `identity` stands for them and for how they are read: what was read of them is kept as long as it stays
    the same, whatever becomes of other streams.
    """

    read: Read
    identity: str
