"""Records, the documents that they hold, and what is left out."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any, Literal

from loriini.common.errors import InputError
from loriini.data.read.document import Document
from loriini.data.read.names import HELDOUT_DOCUMENTS

MAX_RECORD_BYTES = 1 << 26
"""The longest record that is read, so that a file without line ends does not fill the memory."""
MAX_DOCUMENT_CHARACTERS = 10_000_000
"""By default, longer documents are dropped: encoding one takes about 170 bytes of memory a character."""
TOO_LONG = f"longer than {MAX_RECORD_BYTES >> 20} MiB"
NAME_THE_FIELD = "name the field of its text (--text-field, where the command has it)"
SHOWN_CHARACTERS = 300
"""How much a message shows of the names of a table's columns or a record's fields."""

OnError = Literal["stop", "skip"]


class BadRecord(Exception):
    """A record that is not a document.

    Attributes:
        reason: the same text for all flawed records of one kind: they are counted by it.
        detail: what is wrong with this one.
        fix: what the user can fix, for a message. None for a record that is not an error, such as an image
            among texts: it is always dropped.
    """

    def __init__(self, reason: str, detail: object = "", fix: str | None = "record") -> None:
        super().__init__(f"{reason} ({detail})" if detail else reason)
        self.reason, self.detail, self.fix = reason, str(detail), fix


Records = Iterator[tuple[int, Mapping[str, Any] | BadRecord | None]]
"""Records, each with its number (of the line or row where it begins, or in a web archive); None for a record
of a type that never holds a document, such as a WARC request.

A reader of a format is a function `(path, fields) -> Records`. It raises when it cannot continue.
"""


@dataclass(frozen=True)
class Dropped:
    """A document that is left out: its id and place where known, and why."""

    id: str | None
    where: str | None
    reason: str
    """The same text for all documents dropped for one reason: they are counted by it."""
    detail: str = ""
    """Details of this document."""


OnDrop = Callable[[Dropped], None]


def count_dropped(on_drop: OnDrop | None = None) -> tuple[OnDrop, Counter[str]]:
    """A callback that counts what is dropped by reason and passes it on to `on_drop`; and its counter."""
    counts = Counter[str]()

    def count(dropped: Dropped) -> None:
        counts[dropped.reason] += 1
        if on_drop:
            on_drop(dropped)

    return count, counts


def describe_dropped(counts: Mapping[str, int]) -> str:
    """Counts by reason as text."""
    return ", ".join(f"{count:,} left out: {reason}" for reason, count in counts.items())


def no_documents(where: object, counts: Mapping[str, int]) -> InputError:
    """The error for an input without documents, with the counts of what was dropped."""
    remedy = "give .jsonl, .csv, .tsv, .parquet, .arrow, .warc or text files"
    if counts:
        remedy = "correct what was left out, or give other files or limits"
    elif str(where).endswith(f"heldout/{HELDOUT_DOCUMENTS}"):  # of a corpus that holds out nothing
        remedy = "prepare the corpus with --heldout-share above 0"
    left_out = f" ({describe_dropped(counts)})" if counts else ""
    return InputError(f"{where}: no document found{left_out}; {remedy}")


@dataclass(frozen=True)
class Fields:
    """The names of the fields or columns that make a document; `a.b` is field b of the object a."""

    text: str = "text"
    id: str = "id"
    domain: str = "domain"

    def of(self, record: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """The text, id and domain of a record; None for an absent one."""
        return field_of(record, self.text), field_of(record, self.id), field_of(record, self.domain)

    def columns_of(self, columns: Sequence[str]) -> list[str]:
        """The columns of a table that may hold the fields.

        Raises BadRecord if none may hold the text, or if two of them have the same name.
        """
        wanted = {column for name in (self.text, self.id, self.domain) for column in _columns(name)}
        if twice := sorted(name for name in wanted if columns.count(name) > 1):
            raise BadRecord("two columns of one name", twice[0], fix="file")
        if not set(_columns(self.text)).intersection(columns):
            detail = f"{self.text!r} is not among {shorten(', '.join(columns), SHOWN_CHARACTERS)}"
            raise BadRecord("no text column", detail, fix=f"file or {NAME_THE_FIELD}")
        return [column for column in columns if column in wanted]


@dataclass(frozen=True)
class ReadOptions:
    """How documents are read and selected.

    `on_error="stop"` turns a flawed record into an InputError, "skip" drops it.
    """

    fields: Fields = field(default_factory=Fields)
    on_error: OnError = "stop"
    min_characters: int = 0
    max_document_characters: int = MAX_DOCUMENT_CHARACTERS

    def reason_to_drop(self, document: Document) -> str:
        """Why a document of this length is not selected; "" if it is."""
        if len(document.text) < self.min_characters:
            return f"fewer than {self.min_characters} characters"
        if len(document.text) > self.max_document_characters:
            return f"more than {self.max_document_characters} characters"
        return ""


def to_document(record: Mapping[str, Any], fields: Fields, default_id: str, domain: str) -> Document:
    """A record's document, with `default_id` and `domain` where it has none; BadRecord without valid text."""
    text, own_id, own_domain = fields.of(record)
    if text is None:
        names = shorten(", ".join(record), SHOWN_CHARACTERS) or "none"
        absent = f"field {fields.text!r} is absent or null; its fields: {names}"
        raise BadRecord("no text", absent, fix=f"record or {NAME_THE_FIELD}")
    if not isinstance(text, str):
        raise BadRecord("text is not a string", f"field {fields.text!r} is a {type(text).__name__}")
    if not text.strip():
        raise BadRecord("empty text", f"field {fields.text!r}")
    document = Document(
        id=scalar_text(own_id, fields.id, "id") or default_id,
        text=text,
        domain=scalar_text(own_domain, fields.domain, "domain") or domain,
    )
    try:
        f"{document.id}{text}{document.domain}".encode()
    except UnicodeEncodeError:
        raise BadRecord("not valid Unicode", "half a surrogate pair") from None
    return document


def scalar_text(value: Any, field: str, what: str) -> str:
    """An id or domain as text, "" where it is absent; BadRecord for an object, a list or bytes."""
    if isinstance(value, Mapping | list | bytes):
        fix = "record" if isinstance(value, bytes) else f"record or name a field, as {field}.NAME"
        raise BadRecord(f"{what} is not a string", f"field {field!r} is a {type(value).__name__}", fix)
    absent = value is None or value != value  # NaN, which data frames write where there is no value
    return "" if absent else str(value)


def _columns(field: str) -> tuple[str, str]:
    """The columns that may hold field `a.b`: `a.b` itself, or `a`, an object with b."""
    return field, field.split(".")[0]


def field_of(record: Mapping[str, Any], field: str) -> Any:
    """The value of a field; `a.b` may be field b of the object a. None if it is absent."""
    if field in record or "." not in field:
        return record.get(field)
    outer, inner = field.split(".", 1)
    value = record.get(outer)
    return field_of(value, inner) if isinstance(value, Mapping) else None
