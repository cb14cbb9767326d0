"""The user's documents as a training side and a held-out side, each within a budget of characters."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from loriini.data.documents import Document
from loriini.data.local_text import stable_hash
from loriini.data.readers import Part, Reading, parts, read_part
from loriini.data.readers.formats import format_of
from loriini.data.readers.records import json_lines, parquet
from loriini.errors import InputError

TRAIN, HELDOUT = "train", "heldout"


def split_documents(
    paths: Sequence[str], train_characters: int, heldout_characters: int, heldout_share: float = 0.08
) -> dict[str, list[Document]]:
    """Read `paths` as {"train": documents, "heldout": documents}, in hash order.

    Files named `*.heldout.*` are the held-out side where there are any; else documents are held out by the
    hash of their id, pieces `id#k` of one text together. Each side keeps at most so many characters, shared
    equally by the domains. InputError when a side is left without documents.
    """
    found = [part for path in paths for part in _parts(path)]
    marked = [part for part in found if f".{HELDOUT}." in part.name]
    sides: dict[str, list[Document]] = {TRAIN: [], HELDOUT: list(_read(marked))}
    for document in _read(part for part in found if part not in marked):
        held = not marked and _fraction(document.id.split("#")[0]) < heldout_share
        sides[HELDOUT if held else TRAIN].append(document)
    budgets = {TRAIN: train_characters, HELDOUT: heldout_characters}
    for name, documents in sides.items():
        if not documents:
            raise InputError(f"{', '.join(paths)}: no {name} document is left; give more text")
        domains = {document.domain for document in documents}
        sides[name] = _within(documents, budgets[name] // len(domains))
    return sides


def _parts(path: str) -> list[Part]:
    """The JSON lines and parquet files of a folder; for want of these, its texts. A file is itself."""
    found = parts([path])
    formats = [format_of(part.path, part.in_folder) for part in found]
    for kinds in ((json_lines, parquet), (None,)):
        chosen = [part for part, kind in zip(found, formats, strict=True) if kind in kinds]
        if chosen:
            return chosen
    return found


def _read(found: Iterable[Part]) -> Iterator[Document]:
    return (document for part in found for document in read_part(part, Reading()))


def _fraction(name: str) -> float:
    """A name's place in [0, 1), the same on every machine."""
    return int(stable_hash(name)[:8], 16) / 16**8


def _within(documents: Iterable[Document], characters_per_domain: int) -> list[Document]:
    """Documents in hash order, until their domain has that many characters; always one a domain."""
    used = Counter[str]()
    kept = []
    for document in sorted(documents, key=lambda d: stable_hash(d.id)):
        if used[document.domain] < characters_per_domain:
            used[document.domain] += len(document.text)
            kept.append(document)
    return kept
