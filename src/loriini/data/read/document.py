"""A text of a corpus."""

from dataclasses import dataclass
from typing import Literal

Contexts = Literal["documents", "strung"]
"""What held-out text is scored in: contexts of a document each, or of documents strung together."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its unique id and the domain that it counts towards."""

    id: str
    text: str
    domain: str
