"""The user's documents as a training side and a held-out side, each within a budget of characters."""

from collections import Counter
from collections.abc import Iterable, Sequence

from loriini.errors import InputError
from loriini.progress import warn
from loriini.sources import InputFile, ReadOptions, hash_fraction, input_files, read_files
from loriini.sources.document import Document
from loriini.sources.dropped import count_dropped, describe_dropped, ignore_dropped
from loriini.sources.formats import reader_of
from loriini.sources.local_text import stable_hash

TRAIN, HELDOUT = "train", "heldout"


def split_documents(
    paths: Sequence[str],
    train_characters: int,
    heldout_characters: int,
    heldout_share: float = 0.08,
    longest: int | None = None,
) -> dict[str, list[Document]]:
    """Read `paths` as {"train": documents, "heldout": documents}, in hash order.

    Files named `*.heldout.*` are the held-out side where there are any; else documents are held out by the
    hash of their id, pieces `id#k` of one text together. Each side keeps at most so many characters, shared
    equally by the domains; documents of more than `longest` characters are left out. InputError when a
    side is left without documents.
    """
    found = [part for path in paths for part in _parts(path)]
    marked, others = ([part for part in found if _is_marked(part) == held] for held in (True, False))
    drop, left_out = count_dropped(ignore_dropped)
    reading = ReadOptions(on_drop=drop, max_document_characters=longest)
    sides: dict[str, list[Document]] = {TRAIN: [], HELDOUT: list(read_files(marked, reading))}
    for document in read_files(others, reading):
        held = not marked and hash_fraction(document.id.split("#")[0]) < heldout_share
        sides[HELDOUT if held else TRAIN].append(document)
    if left_out:
        warn(describe_dropped(left_out))
    budgets = {TRAIN: train_characters, HELDOUT: heldout_characters}
    for name, documents in sides.items():
        if not documents:
            raise InputError(f"{', '.join(paths)}: no {name} document is left; give more text")
        domains = {document.domain for document in documents}
        sides[name] = _within(documents, budgets[name] // len(domains))
    return sides


def _parts(path: str) -> list[InputFile]:
    """The files of records of a folder and data sets; for want of these, its texts. A file is itself."""
    found = input_files([path])
    records = [part for part in found if part.shard or reader_of(part.path, part.in_folder)]
    return records or found


def _is_marked(part: InputFile) -> bool:
    return f".{HELDOUT}." in part.name


def _within(documents: Iterable[Document], characters_per_domain: int) -> list[Document]:
    """Documents in hash order, until their domain has that many characters; always one a domain."""
    used = Counter[str]()
    kept = []
    for document in sorted(documents, key=lambda d: stable_hash(d.id)):
        if used[document.domain] < characters_per_domain:
            used[document.domain] += len(document.text)
            kept.append(document)
    return kept
