"""The user's documents as a training side and a held-out side, each within a budget of characters."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from loriini.data.documents import Document
from loriini.data.local_text import stable_hash
from loriini.data.readers import read_documents
from loriini.errors import InputError

TRAIN, HELDOUT = "train", "heldout"


def split_documents(
    paths: Iterable[str], train_characters: int, heldout_characters: int, heldout_share: float = 0.08
) -> dict[str, list[Document]]:
    """Read `paths` as {"train": documents, "heldout": documents}, in hash order.

    Files named `*.heldout.*` are the held-out side where there are any; else documents are held out by the
    hash of their id, pieces `id#k` of one text together. Each side keeps at most so many characters, shared
    equally by the domains. InputError when a side is left without documents.
    """
    files = [file for path in paths for file in _files(Path(path))]
    marked = [file for file in files if f".{HELDOUT}." in file.name]
    sides: dict[str, list[Document]] = {TRAIN: [], HELDOUT: list(read_documents(marked))}
    for document in read_documents([file for file in files if file not in marked]):
        held = not marked and _fraction(document.id.split("#")[0]) < heldout_share
        sides[HELDOUT if held else TRAIN].append(document)
    budgets = {TRAIN: train_characters, HELDOUT: heldout_characters}
    for name, documents in sides.items():
        if not documents:
            raise InputError(f"{', '.join(map(str, files))}: no {name} document is left; give more text")
        domains = {document.domain for document in documents}
        sides[name] = _within(documents, budgets[name] // len(domains))
    return sides


def _files(path: Path) -> list[Path]:
    """The data files below a folder, or the path itself: a file, or a folder of plain texts."""
    if not path.is_dir():
        return [path]
    return sorted(p for p in path.rglob("*") if ".jsonl" in p.name or p.suffix == ".parquet") or [path]


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
