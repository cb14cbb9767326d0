"""The user's documents as a training side and a held-out side, each within a budget of characters."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, takewhile

from loriini.common.errors import InputError
from loriini.common.progress import warn
from loriini.data.read.document import Document
from loriini.data.read.dropped import Dropped, OnDrop, count_dropped, describe_dropped, ignore_dropped
from loriini.data.read.formats import begins_as_text
from loriini.data.read.inputs import InputFile, input_files
from loriini.data.read.options import OnError, ReadOptions
from loriini.data.read.read import has_records, read_files
from loriini.data.read.records import MAX_DOCUMENT_CHARACTERS, SPLITS, Fields
from loriini.data.read.sampling import hash_fraction

TRAIN, HELDOUT = "train", "heldout"
DEFAULT_FIELDS = Fields()
HELDOUT_SHARE = 0.08
"""Of the documents, where no file is held out by name."""
HELDOUT_MARK = f".{HELDOUT}."
"""Part of the name of a held-out file."""
SPLIT = re.compile(rf"(?:^|[-_./])({'|'.join(SPLITS)})(?=[-_./])")
"""A split in a part of the path of a data set's file."""
WHOLE_NAME = re.compile(rf"({'|'.join(SPLITS)})(?:[-_.]?\d[^.]*)?(?:\..*)?")
"""A part that is a split's name, but for numbers and endings."""


def split_documents(
    paths: Sequence[str],
    train_characters: int,
    heldout_characters: int,
    longest: int = MAX_DOCUMENT_CHARACTERS,
    on_error: OnError = "stop",
    fields: Fields = DEFAULT_FIELDS,
) -> dict[str, list[Document]]:
    """Read `paths` as {"train": documents, "heldout": documents}, in the order of their texts' hashes.

    - If there are files named `*.heldout.*`, they are the held-out side, and a document with the text of one
      of theirs is not trained on. Otherwise HELDOUT_SHARE of the documents is held out by the hash of their
      text. All copies of a text are therefore on one side.
    - Of the copies of a text in one domain, only the first is kept.
    - A side has about `train_characters` or `heldout_characters`, divided equally among its domains, and at
      least one document per domain.
    - Documents of more than `longest` characters are left out, and so are the text files of a folder that has
      records.

    Memory holds little more than these characters, and a hash of each text in files named `*.heldout.*`.

    Raises:
        InputError: a side has no documents.
    """
    on_drop, dropped = count_dropped(ignore_dropped)
    files = [file for path in paths for file in _files(path, on_drop)]
    marked, others = ([file for file in files if _is_marked(file) == held] for held in (True, False))
    options = ReadOptions(fields, on_error, on_drop=on_drop, max_document_characters=longest)
    sides = {TRAIN: Side(train_characters), HELDOUT: Side(heldout_characters)}
    heldout_ranks = set[float]()
    for document in read_files(marked, options):
        rank = hash_fraction(document.text)
        heldout_ranks.add(rank)
        sides[HELDOUT].add(rank, document)
    for document in read_files(others, options):
        rank = hash_fraction(document.text)
        if rank in heldout_ranks:
            on_drop(Dropped(document.id, None, "its text is held out"))
        else:
            sides[HELDOUT if not marked and rank < HELDOUT_SHARE else TRAIN].add(rank, document)
    if dropped:
        warn(describe_dropped(dropped))
    for name, side in sides.items():
        if not side.domains:
            remedy = f"files that are not named *{HELDOUT_MARK}*" if marked and not others else "more text"
            raise InputError(f"{', '.join(paths)}: no {name} document is left; give {remedy}")
    return {name: side.documents() for name, side in sides.items()}


@dataclass
class _Lowest:
    """A domain's documents of the lowest ranks, which are distinct."""

    kept: dict[float, Document] = field(default_factory=dict)
    falling: list[float] = field(default_factory=list)
    """A heap of the ranks, negated: the highest is first."""
    characters: int = 0

    def add(self, rank: float, document: Document) -> None:
        if rank not in self.kept:
            self.kept[rank] = document
            heappush(self.falling, -rank)
            self.characters += len(document.text)

    def cut(self, characters: int) -> None:
        """Drop the highest ranks while the others have `characters`, at least 1."""
        while self.characters - len(self.kept[-self.falling[0]].text) >= characters:
            self.characters -= len(self.kept.pop(-heappop(self.falling)).text)


@dataclass
class Side:
    """Documents in the order of their ranks until each domain has its equal part of `characters`.

    It holds no more than the domains known so far need: with D domains in sorted files, at most
    1 + 1/2 + … + 1/D times `characters`, and a document of each.
    """

    characters: int
    domains: dict[str, _Lowest] = field(default_factory=dict)

    def add(self, rank: float, document: Document) -> None:
        """Add a document, unless there is one with its domain and rank."""
        lowest = self.domains.setdefault(document.domain, _Lowest())
        lowest.add(rank, document)
        lowest.cut(self._characters_per_domain)

    def documents(self) -> list[Document]:
        """The documents by rank, those of one rank by domain; at least one a domain."""
        for lowest in self.domains.values():
            lowest.cut(self._characters_per_domain)
        ranked = chain.from_iterable(lowest.kept.items() for lowest in self.domains.values())
        return [document for _, document in sorted(ranked, key=lambda item: (item[0], item[1].domain))]

    @property
    def _characters_per_domain(self) -> int:
        return max(1, self.characters // len(self.domains))


def heldout_files(paths: Sequence[str], folders: int | None = 1) -> list[str]:
    """The files that are held out by name: `*.heldout.*`, or those of another split than `train`.

    A split is named by a file or one of its last `folders` (None: all) that not all files share, and counts
    only if a split `train` is there. Empty if all files would be held out.
    """
    parts = [path.split("/") for path in paths]
    columns = zip(*(each[:-1] for each in parts), strict=False)
    shared = sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, columns))
    first = None if folders is None else -1 - folders
    named = (split_of("/".join(each[shared:][first:])) for each in parts)
    splits = {path: split for path, split in zip(paths, named, strict=True) if split}
    is_split = TRAIN in splits.values()
    held = [
        path
        for path in paths
        if HELDOUT_MARK in os.path.basename(path) or (is_split and splits.get(path, TRAIN) != TRAIN)
    ]
    return held if len(held) < len(paths) else []


def split_of(path: str) -> str | None:
    """The split of a file of a data set; None for none.

    It is that which is the file's whole name or the nearest folder's (`WHOLE_NAME`), or else one that the
    file's name contains, or the nearest folder's.
    """
    parts = path.split("/")[::-1]
    whole = (WHOLE_NAME.fullmatch(part) for part in parts)
    within = (SPLIT.search(f"{part}/") for part in parts)
    return next((match[1] for match in chain(whole, within) if match), None)


def _files(path: str, on_drop: OnDrop) -> Iterator[InputFile]:
    """The files behind a path; a folder's text files only where it has no records."""
    files = input_files([path])
    only_records = any(map(has_records, files))
    for file in files:
        if only_records and file.in_folder and not has_records(file):
            is_text = begins_as_text(file.path)
            what = "text next to records; give the file by name to read it" if is_text else "not a text file"
            on_drop(Dropped(None, file.path, what))
        else:
            yield file


def _is_marked(file: InputFile) -> bool:
    return HELDOUT_MARK in os.path.basename(file.name)
