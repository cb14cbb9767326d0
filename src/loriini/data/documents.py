"""The `documents` artefact that every later stage reads: distinct texts, each with a name of its own.

Writing is a stream: memory does not grow with the corpus, except for the hashes that find exact duplicates.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import zstandard

from loriini.data import artifact
from loriini.data.artifact import Artifact
from loriini.data.compressed import read_lines
from loriini.errors import InputError
from loriini.progress import progress

DOCUMENTS = "documents.jsonl.zst"


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


def write_documents(
    folder: Path,
    documents: Callable[[Counter[str]], Iterable[Document]],
    settings: Mapping[str, Any],
    inputs: Mapping[str, str] | None = None,
    max_characters: int | None = None,
) -> Artifact:
    """Build the `documents` artefact: one zstd file of JSON lines, in the order given.

    `documents(skipped)` is called only when the stage is not finished; it returns the documents and counts in
    `skipped` what it leaves out. An exact duplicate of an earlier text is dropped and counted; a text longer
    than `max_characters` is cut with `split_document`; an id met before is given the suffix `#2`, `#3`, ...
    and counted. Raises InputError when no document is left.
    """

    def write(temporary: Path) -> dict[str, Any]:
        skipped, domains = Counter[str](), Counter[str]()
        tally = Counter(characters=0, duplicates=0, renamed_ids=0)
        pieces = (
            piece
            for document in _distinct(documents(skipped), tally)
            for piece in ([document] if max_characters is None else split_document(document, max_characters))
        )
        with zstandard.open(temporary / DOCUMENTS, "wb") as file, progress("documents") as advance:
            for document in _named_apart(pieces, tally):
                file.write(json.dumps(asdict(document), ensure_ascii=False).encode() + b"\n")
                domains[document.domain] += 1
                tally["characters"] += len(document.text)
                advance()
        if not domains:
            raise InputError(f"{folder}: no document is left to write; give documents with text")
        return {"documents": domains.total(), "domains": domains, "skipped": skipped, **tally}

    return artifact.build(folder, {**settings, "max_characters": max_characters}, inputs or {}, write)


def stored_documents(stored: Artifact) -> Iterator[Document]:
    """Stream the documents of a `documents` artefact, in order."""
    for line in read_lines(stored.path(DOCUMENTS)):
        yield Document(**json.loads(line))


def _distinct(documents: Iterable[Document], tally: Counter[str]) -> Iterator[Document]:
    """Drop and count the documents whose text was seen before."""
    seen: set[bytes] = set()
    for document in documents:
        text_hash = hashlib.sha256(document.text.encode()).digest()
        if text_hash in seen:
            tally["duplicates"] += 1
        else:
            seen.add(text_hash)
            yield document


def _named_apart(documents: Iterable[Document], tally: Counter[str]) -> Iterator[Document]:
    """Give a suffix to every id that was met before, and count these."""
    last_number: dict[str, int] = {}
    for document in documents:
        name = document.id
        while name in last_number:
            last_number[document.id] += 1
            name = f"{document.id}#{last_number[document.id]}"
        last_number[name] = 1
        tally["renamed_ids"] += name != document.id
        yield document if name == document.id else replace(document, id=name)


def _cut(text: str, start: int, stop: int) -> int:
    """Where to end the piece that begins at `start` and may reach to `stop`."""
    middle = (start + stop) // 2
    newline = text.rfind("\n", middle, stop)
    if newline >= 0:
        return newline + 1
    spaces = (i + 1 for i in range(stop - 1, middle, -1) if text[i].isspace())
    return next(spaces, stop)
