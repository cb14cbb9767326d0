"""What every format shares: which fields make a document, what a flaw is, and what becomes of it."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, get_args

from loriini.errors import InputError
from loriini.sources.document import Document
from loriini.sources.dropped import Drop, Dropped, unrecorded
from loriini.sources.files import in_one_line

OnError = Literal["stop", "skip"]
ON_ERROR = get_args(OnError)

LONGEST = 1 << 30
"""Bytes of the longest record that is read: a file without line ends must not fill the memory."""


@dataclass(frozen=True)
class Fields:
    """The names of the fields or columns of each part of a document; `a.b` is field b in the object a."""

    text: str = "text"
    id: str = "id"
    domain: str = "domain"

    def of(self, record: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """The text, id and domain in a record; None where there is none."""
        return _field(record, self.text), _field(record, self.id), _field(record, self.domain)

    def among(self, columns: list[str]) -> list[str]:
        """Those of a table's columns that are needed; Flaw when the text's is not there."""
        needed = {column for field in (self.text, self.id, self.domain) for column in _names(field)}
        if not needed.intersection(columns).intersection(_names(self.text)):
            detail = f"{self.text!r} is not among {', '.join(columns)}"
            raise Flaw("no text column", detail, mend="file or name its text field")
        return [column for column in columns if column in needed]


class Flaw(Exception):
    """A record that is not a document.

    `reason` is what is counted, `detail` what only this one shows, `mend` what the user may mend. A flaw that
    is no fault of the input's, such as a picture among texts, has no `mend`: it never stops the reading.
    """

    def __init__(self, reason: str, detail: object = "", mend: str | None = "record") -> None:
        super().__init__(f"{reason} ({detail})" if detail else reason)
        self.reason, self.detail, self.mend = reason, str(detail), mend


@dataclass(frozen=True)
class Reading:
    """Which documents to take: their fields, their length, what a flaw does and who hears of what is dropped.

    With `on_error="stop"` a flaw is an InputError, with "skip" it is dropped.
    """

    fields: Fields = Fields()
    on_error: OnError = "stop"
    drop: Drop = unrecorded
    min_characters: int = 0
    max_document_characters: int | None = None

    def report(self, flaw: Flaw, where: str) -> None:
        """Raise InputError for `flaw` at `where`, or drop it."""
        if self.on_error == "stop" and flaw.mend:
            remedy = f"mend the {flaw.mend}, or pass --on-error skip to count it and go on"
            raise InputError(f"{in_one_line(where)}: {' '.join(str(flaw).split())}; {remedy}")
        self.drop(Dropped(None, where, flaw.reason, flaw.detail))

    def selected(self, document: Document, where: str, weight: float = 1.0) -> Iterator[Document]:
        """The document, or nothing when its length or its luck is wrong: then it is dropped."""
        length = len(document.text)
        if length < self.min_characters:
            reason = f"fewer than {self.min_characters} characters"
        elif self.max_document_characters is not None and length > self.max_document_characters:
            reason = f"more than {self.max_document_characters} characters"
        elif weight < 1 and luck(document.id) >= weight:
            reason = f"not in the sample of {weight:g}"
        else:
            yield document
            return
        self.drop(Dropped(document.id, where, reason))


def to_document(record: Mapping[str, Any], fields: Fields, name: str, domain: str) -> Document:
    """A record's document, with this name and domain for want of its own; Flaw when it holds none."""
    text, own_name, own_domain = fields.of(record)
    if text is None:
        raise Flaw("no text", f"field {fields.text!r} is absent or null")
    if not isinstance(text, str):
        raise Flaw("text is not a string", f"field {fields.text!r} holds a {type(text).__name__}")
    if not text.strip():
        raise Flaw("empty text", f"field {fields.text!r}")
    document = Document(
        id=name if own_name in (None, "") else str(own_name),
        text=text,
        domain=domain if own_domain in (None, "") else str(own_domain),
    )
    try:
        f"{document.id}{text}{document.domain}".encode()
    except UnicodeEncodeError:
        raise Flaw("not valid Unicode", "half a surrogate pair") from None
    return document


def domain_of(file: str) -> str:
    """A file's name up to its first dot, without a data set's `-00003-of-00064`."""
    return re.sub(r"-\d+-of-\d+$", "", file.rsplit("/", 1)[-1].split(".", 1)[0])


def needed(module: str, path: str) -> Any:
    """An optional package's module; InputError naming the extra when it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        told = f"reading this needs {module} ({str(error).splitlines()[0]})"
        raise InputError(f"{in_one_line(path)}: {told}; run: pip install 'loriini[inputs]'") from None


def _names(field: str) -> tuple[str, str]:
    """What a field's column may be called: all of `a.b`, or `a`, an object that holds b."""
    return field, field.split(".")[0]


def _field(record: Mapping[str, Any], field: str) -> Any:
    if field in record or "." not in field:
        return record.get(field)
    outer, inner = field.split(".", 1)
    value = record.get(outer)
    return _field(value, inner) if isinstance(value, Mapping) else None


def luck(name: str) -> float:
    """A number in [0, 1) that is always the same for a name: a smaller sample is part of a larger one."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
