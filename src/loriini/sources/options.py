"""Which documents to take from the inputs, and what happens to the others."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from loriini.errors import InputError
from loriini.sources.document import Document
from loriini.sources.dropped import Dropped, OnDrop, ignore_dropped
from loriini.sources.fields import BadRecord, Fields

OnError = Literal["stop", "skip"]
ON_ERROR = get_args(OnError)


@dataclass(frozen=True)
class ReadOptions:
    """Which documents to take: their fields, their length, what a flaw does and who hears of what is dropped.

    With `on_error="stop"` a flaw is an InputError, with "skip" it is dropped.
    """

    fields: Fields = field(default_factory=Fields)
    on_error: OnError = "stop"
    on_drop: OnDrop = ignore_dropped
    min_characters: int = 0
    max_document_characters: int | None = None

    def report(self, flaw: BadRecord, where: str) -> None:
        """Raise InputError for `flaw` at `where`, or drop it."""
        if self.on_error == "stop" and flaw.mend:
            remedy = f"mend the {flaw.mend}, or pass --on-error skip to count it and go on"
            raise InputError(f"{where}: {' '.join(str(flaw).split())}; {remedy}")
        self.on_drop(Dropped(None, where, flaw.reason, flaw.detail))

    def selected(self, document: Document, where: str, weight: float = 1.0) -> Iterator[Document]:
        """The document, or nothing when its length or its luck is wrong: then it is dropped."""
        length = len(document.text)
        if length < self.min_characters:
            reason = f"fewer than {self.min_characters} characters"
        elif self.max_document_characters is not None and length > self.max_document_characters:
            reason = f"more than {self.max_document_characters} characters"
        elif weight < 1 and hash_fraction(document.id) >= weight:
            reason = f"not in the sample of {weight:g}"
        else:
            yield document
            return
        self.on_drop(Dropped(document.id, where, reason))


def hash_fraction(name: str) -> float:
    """A number in [0, 1) that is always the same for a name: a smaller sample is part of a larger one."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
