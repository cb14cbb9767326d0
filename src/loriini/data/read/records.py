"""Records, the rows or objects of a file, and the documents that they hold."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from loriini.data.read.document import Document

MAX_RECORD_BYTES = 1 << 26
"""The longest record that is read, so that a file without line ends does not fill the memory."""
MAX_DOCUMENT_CHARACTERS = 10_000_000
"""By default, longer documents are dropped: encoding one takes about 170 bytes a character."""
NAME_THE_FIELD = "name the field of its text (--text-field, where the command has it)"
KINDS = {
    dict: "an object",
    list: "a list",
    bytes: "bytes",
    bool: "true or false",
    int: "a number",
    float: "a number",
}
SHOWN_CHARACTERS = 300
"""Of a table's columns in a message."""
ONE_LINE_A_RECORD = "write each record on one line, as jq -c '.[]' does"
TOO_LONG = f"longer than {MAX_RECORD_BYTES >> 20} MiB"


class BadRecord(Exception):
    """A record that is not a document.

    Attributes:
        reason: the same text for all flawed records of one kind, by which they are counted.
        detail: what is wrong with this one.
        fix: what the user can fix. None for a record that is not an error, such as an image among texts: it
            is always dropped.
    """

    def __init__(self, reason: str, detail: object = "", fix: str | None = "record") -> None:
        super().__init__(f"{reason} ({detail})" if detail else reason)
        self.reason, self.detail, self.fix = reason, str(detail), fix


Records = Iterator[tuple[int, Mapping[str, Any] | BadRecord | None]]
"""Records with the number of the line or row where they begin; None for one of a kind without documents.

A reader of a format is a function `(path, fields) -> Records`. It raises when it cannot continue.
"""


@dataclass(frozen=True)
class Fields:
    """The names of the fields or columns that make a document; `a.b` is field b of the object a."""

    text: str = "text"
    id: str = "id"
    domain: str = "domain"

    def of(self, record: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """The text, id and domain of a record; None for an absent one."""
        return _field(record, self.text), _field(record, self.id), _field(record, self.domain)

    @property
    def columns(self) -> set[str]:
        """The columns of a table that may hold the fields."""
        return {column for field in (self.text, self.id, self.domain) for column in _columns(field)}

    def check_text_column(self, columns: Sequence[str]) -> None:
        """BadRecord when none of a table's columns may hold the text, or two have the name of one field."""
        if twice := sorted(name for name in self.columns if columns.count(name) > 1):
            raise BadRecord("two columns of one name", twice[0], fix="file")
        if not set(_columns(self.text)).intersection(columns):
            detail = f"{self.text!r} is not among {shorten(', '.join(columns), SHOWN_CHARACTERS)}"
            raise BadRecord("no text column", detail, fix=f"file or {NAME_THE_FIELD}")


def to_document(record: Mapping[str, Any], fields: Fields, name: str, domain: str) -> Document:
    """A record's document, with `name` and `domain` where it has none; BadRecord when it has no text."""
    text, own_name, own_domain = fields.of(record)
    if text is None:
        names = shorten(", ".join(record), SHOWN_CHARACTERS) or "none"
        absent = f"field {fields.text!r} is absent or null; its fields: {names}"
        raise BadRecord("no text", absent, fix=f"record or {NAME_THE_FIELD}")
    if not isinstance(text, str):
        raise BadRecord("text is not a string", f"field {fields.text!r} holds {kind_of(text)}")
    if not text.strip():
        raise BadRecord("empty text", f"field {fields.text!r}")
    document = Document(
        id=name_of(own_name, fields.id, "id") or name,
        text=text,
        domain=name_of(own_domain, fields.domain, "domain") or domain,
    )
    try:
        f"{document.id}{text}{document.domain}".encode()
    except UnicodeEncodeError:
        raise BadRecord("not valid Unicode", "half a surrogate pair") from None
    return document


def name_of(value: Any, field: str, what: str) -> str:
    """An id or domain as text, "" where it is absent; BadRecord for an object, a list or bytes."""
    if isinstance(value, Mapping | list | bytes):
        fix = "record" if isinstance(value, bytes) else f"record or name a field, as {field}.NAME"
        raise BadRecord(f"{what} is not a string", f"field {field!r} holds {kind_of(value)}", fix)
    absent = value is None or value != value  # NaN, which data frames write where there is no value
    return "" if absent else str(value)


def kind_of(value: Any) -> str:
    """What a field holds that should be a string, in words."""
    return KINDS.get(type(value), f"a value of type {type(value).__name__}")


SPLITS = ("train", "validation", "valid", "val", "dev", "test", "eval", "heldout")
"""As the Hub names them."""
SHARD = re.compile(r"(-\d+-of-\d+|([-_]\d+)*[-_](?!(19|20)\d\d(\d\d){0,2}$)\d{3,})$")
"""How the name of a shard ends: `-3-of-64`, `_0012`, `_000_00003`. Dates such as `_2024` or `-20240131` and
shorter numbers are no shard's."""
SAYS_NOTHING = re.compile(rf"({'|'.join(SPLITS)}|part|shard|chunk|file|data)?([-_]?\d+)*")
"""Names of files and folders that do not say what their text is: a split's, `part-0`, `0003`."""


def domain_from_name(file: str, folders: Sequence[str] = ()) -> str:
    """A file's name up to its first dot, without the numbers of a shard.

    Where that says nothing, the first of `folders` whose name does, or else the last of them.
    """
    whole = file.rsplit("/", 1)[-1]
    name = SHARD.sub("", whole.lstrip(".").split(".", 1)[0])
    telling = (each for each in (name, *folders) if not SAYS_NOTHING.fullmatch(each))
    return next(telling, "".join(folders[-1:]) or name or whole)


def folders_above(path: Path) -> list[str]:
    """The names of the two folders above a file, the nearest first: those that may name its domain."""
    return [folder.name for folder in path.absolute().parents[:2]]


def _columns(field: str) -> tuple[str, str]:
    """The columns that may hold field `a.b`: `a.b` itself, or `a`, an object with b."""
    return field, field.split(".")[0]


def _field(record: Mapping[str, Any], field: str) -> Any:
    if field in record or "." not in field:
        return record.get(field)
    outer, inner = field.split(".", 1)
    value = record.get(outer)
    return _field(value, inner) if isinstance(value, Mapping) else None
