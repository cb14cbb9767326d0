"""Which documents are read, and what happens to the others."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from loriini.common.checks import check_fields
from loriini.common.errors import InputError
from loriini.data.read.document import Document
from loriini.data.read.dropped import Dropped, OnDrop, ignore_dropped
from loriini.data.read.records import MAX_DOCUMENT_CHARACTERS, BadRecord, Fields
from loriini.data.read.sampling import hash_fraction

OnError = Literal["stop", "skip"]
NOT_SAMPLED = "not in the sample of "
"""The beginning of the reason for dropping documents outside a sample."""


@dataclass(frozen=True)
class ReadOptions:
    """How documents are read and selected.

    `on_error="stop"` turns a flawed record into an InputError, "skip" drops it. `on_drop` is called with
    every dropped record or document.
    """

    fields: Fields = field(default_factory=Fields)
    on_error: OnError = "stop"
    on_drop: OnDrop = ignore_dropped
    min_characters: int = 0
    max_document_characters: int = MAX_DOCUMENT_CHARACTERS

    def __post_init__(self) -> None:
        check_fields(self, dashed=True)  # else a misspelt on_error would drop flawed records

    def report(self, bad: BadRecord, where: str) -> None:
        """Raise InputError for a flawed record at `where`, or drop it."""
        if self.on_error == "stop" and bad.fix:
            remedy = f"fix the {bad.fix}, or pass --on-error skip to count and skip it"
            raise InputError(f"{where}: {' '.join(str(bad).split())}; {remedy}")
        self.on_drop(Dropped(None, where, bad.reason, bad.detail, bool(bad.fix)))

    def selected(self, document: Document, where: str, weight: float, file: str) -> Iterator[Document]:
        """Yield the document unless its length or the sample of a share `weight` excludes it.

        The sample is drawn by the hash of the whole document and the name of its `file`, since ids may repeat
        between and within files.
        """
        length = len(document.text)
        if length < self.min_characters:
            reason = f"fewer than {self.min_characters} characters"
        elif length > self.max_document_characters:
            reason = f"more than {self.max_document_characters} characters"
        elif weight < 1 and hash_fraction(f"{file}\0{document.id}\0{document.text}") >= weight:
            reason = f"{NOT_SAMPLED}{weight:g}"
        else:
            yield document
            return
        self.on_drop(Dropped(document.id, where, reason))
