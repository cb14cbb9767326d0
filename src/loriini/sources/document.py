"""A text of a corpus."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
    """One text of a corpus, with a name of its own and the domain it counts towards."""

    id: str
    text: str
    domain: str
