"""Which fields of a record make a document, and what is wrong with a record that makes none."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from loriini.errors import InputError
from loriini.sources.document import Document

MAX_RECORD_BYTES = 1 << 30
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
        wanted = {column for field in (self.text, self.id, self.domain) for column in _names(field)}
        if not wanted.intersection(columns).intersection(_names(self.text)):
            detail = f"{self.text!r} is not among {', '.join(columns)}"
            raise BadRecord("no text column", detail, mend="file or name its text field")
        return [column for column in columns if column in wanted]


class BadRecord(Exception):
    """A record that is not a document.

    `reason` is what is counted, `detail` what only this one shows, `mend` what the user may mend. A flaw that
    is no fault of the input's, such as a picture among texts, has no `mend`: it never stops the reading.
    """

    def __init__(self, reason: str, detail: object = "", mend: str | None = "record") -> None:
        super().__init__(f"{reason} ({detail})" if detail else reason)
        self.reason, self.detail, self.mend = reason, str(detail), mend


def to_document(record: Mapping[str, Any], fields: Fields, name: str, domain: str) -> Document:
    """A record's document, with this name and domain for want of its own; Flaw when it holds none."""
    text, own_name, own_domain = fields.of(record)
    if text is None:
        raise BadRecord("no text", f"field {fields.text!r} is absent or null")
    if not isinstance(text, str):
        raise BadRecord("text is not a string", f"field {fields.text!r} holds a {type(text).__name__}")
    if not text.strip():
        raise BadRecord("empty text", f"field {fields.text!r}")
    document = Document(
        id=name if own_name in (None, "") else str(own_name),
        text=text,
        domain=domain if own_domain in (None, "") else str(own_domain),
    )
    try:
        f"{document.id}{text}{document.domain}".encode()
    except UnicodeEncodeError:
        raise BadRecord("not valid Unicode", "half a surrogate pair") from None
    return document


def domain_from_name(file: str) -> str:
    """A file's name up to its first dot, without a data set's `-00003-of-00064`."""
    return re.sub(r"-\d+-of-\d+$", "", file.rsplit("/", 1)[-1].split(".", 1)[0])


def import_optional(module: str, path: str) -> Any:
    """An optional package's module; InputError naming the extra when it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        told = f"reading this needs {module} ({str(error).splitlines()[0]})"
        raise InputError(f"{path}: {told}; run: pip install 'loriini[inputs]'") from None


def _names(field: str) -> tuple[str, str]:
    """What a field's column may be called: all of `a.b`, or `a`, an object that holds b."""
    return field, field.split(".")[0]


def _field(record: Mapping[str, Any], field: str) -> Any:
    if field in record or "." not in field:
        return record.get(field)
    outer, inner = field.split(".", 1)
    value = record.get(outer)
    return _field(value, inner) if isinstance(value, Mapping) else None
