"""A text of a corpus."""

from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Document:
    """One text of a corpus, with a name of its own and the domain it counts towards."""

    id: str
    text: str
    domain: str


def split_document(document: Document, max_characters: int) -> list[Document]:
    """Cut a document into pieces of at most `max_characters` whose texts concatenate to its own exactly.

    A cut falls after the last line end in the second half of a piece, else after the last white space there,
    else at `max_characters`. Pieces are named `id#0`, `id#1`, ...; a document that fits is returned as it is.
    Raises ValueError when `max_characters` is not positive.
    """
    if max_characters < 1:
        raise ValueError(f"max_characters is {max_characters}; it must be positive")
    text = document.text
    if len(text) <= max_characters:
        return [document]
    cuts = [0]
    while len(text) - cuts[-1] > max_characters:
        cuts.append(_cut(text, cuts[-1], cuts[-1] + max_characters))
    cuts.append(len(text))
    pieces = [text[start:stop] for start, stop in pairwise(cuts)]
    return [replace(document, id=f"{document.id}#{i}", text=piece) for i, piece in enumerate(pieces)]


def _cut(text: str, start: int, stop: int) -> int:
    """Where to end the piece that begins at `start` and may reach to `stop`."""
    middle = (start + stop) // 2
    newline = text.rfind("\n", middle, stop)
    if newline >= 0:
        return newline + 1
    spaces = (i + 1 for i in range(stop - 1, middle, -1) if text[i].isspace())
    return next(spaces, stop)
