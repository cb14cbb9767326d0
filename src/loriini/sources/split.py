"""The user's documents as a training side and a held-out side, each within a budget of characters."""

from collections import Counter
from collections.abc import Iterable, Sequence

from loriini.errors import InputError
from loriini.progress import warn
from loriini.sources.document import Document
from loriini.sources.dropped import count_dropped, describe_dropped, ignore_dropped
from loriini.sources.formats import reader_of
from loriini.sources.inputs import InputFile, input_files
from loriini.sources.options import ReadOptions
from loriini.sources.read import read_files
from loriini.sources.records import MAX_DOCUMENT_CHARACTERS
from loriini.sources.sampling import hash_fraction

TRAIN, HELDOUT = "train", "heldout"


def split_documents(
    paths: Sequence[str],
    train_characters: int,
    heldout_characters: int,
    heldout_share: float = 0.08,
    longest: int = MAX_DOCUMENT_CHARACTERS,
) -> dict[str, list[Document]]:
    """Read `paths` as {"train": documents, "heldout": documents}, in hash order.

    Files named `*.heldout.*` are the held-out side if there are any; otherwise a `heldout_share` of the
    documents is, by the hash of their id. Each side has about `train_characters` or `heldout_characters`,
    divided equally among the domains, and at least one document a domain. Documents of more than `longest`
    characters are left out. Raises InputError when a side has no document.
    """
    files = [file for path in paths for file in _files(path)]
    marked, others = ([file for file in files if _is_marked(file) == held] for held in (True, False))
    on_drop, dropped = count_dropped(ignore_dropped)
    options = ReadOptions(on_drop=on_drop, max_document_characters=longest)
    sides: dict[str, list[Document]] = {TRAIN: [], HELDOUT: list(read_files(marked, options))}
    for document in read_files(others, options):
        held = not marked and hash_fraction(document.id) < heldout_share
        sides[HELDOUT if held else TRAIN].append(document)
    if dropped:
        warn(describe_dropped(dropped))
    budgets = {TRAIN: train_characters, HELDOUT: heldout_characters}
    for name, documents in sides.items():
        if not documents:
            raise InputError(f"{', '.join(paths)}: no {name} document is left; give more text")
        domains = {document.domain for document in documents}
        sides[name] = _within(documents, budgets[name] // len(domains))
    return sides


def _files(path: str) -> list[InputFile]:
    """The files of records and data sets behind a path; if there are none, its text files."""
    files = input_files([path])
    return [file for file in files if file.shard or reader_of(file.path, file.in_folder)] or files


def _is_marked(file: InputFile) -> bool:
    return f".{HELDOUT}." in file.name


def _within(documents: Iterable[Document], characters_per_domain: int) -> list[Document]:
    """Documents in hash order until their domain has `characters_per_domain`; at least one a domain."""
    used = Counter[str]()
    kept = []
    for document in sorted(documents, key=lambda d: hash_fraction(d.id)):
        if used[document.domain] < characters_per_domain:
            used[document.domain] += len(document.text)
            kept.append(document)
    return kept
