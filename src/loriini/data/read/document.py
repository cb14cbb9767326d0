"""A text of a corpus."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its unique id and the domain that it counts towards."""

    id: str
    text: str
    domain: str
