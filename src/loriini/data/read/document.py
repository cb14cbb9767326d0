"""Documents: the texts that are read."""

from dataclasses import dataclass
from typing import Literal

Contexts = Literal["documents", "strung"]
"""How held-out text is cut into contexts: each document by itself, or documents strung together."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its id and the domain that it counts towards."""

    id: str
    text: str
    domain: str
