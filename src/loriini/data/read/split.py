"""The user's documents as a training side and a held-out side, each within a budget of characters."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter

from loriini.common.errors import InputError
from loriini.common.progress import warn
from loriini.data.read.document import Document
from loriini.data.read.inputs import InputFile, input_files
from loriini.data.read.names import HELDOUT, HELDOUT_MARK, TRAIN, is_marked
from loriini.data.read.read import read_files, text_next_to_records
from loriini.data.read.records import Dropped, ReadOptions, count_dropped, describe_dropped
from loriini.data.read.sampling import hash_fraction

HELDOUT_SHARE = 0.08
"""Fraction of documents held out if no input file is named `*.heldout.*`."""


def split_documents(
    paths: Sequence[str], train_characters: int, heldout_characters: int, options: ReadOptions | None = None
) -> dict[str, list[Document]]:
    """Read `paths` as {"train": documents, "heldout": documents}, in the order of their texts' hashes.

    - If there are files named `*.heldout.*`, they are the held-out side, and a document whose text is in them
      is not trained on. Otherwise HELDOUT_SHARE of the documents is held out by the hash of their text. All
      copies of a text are therefore on one side.
    - Of the copies of a text in one domain, only the first is kept.
    - Sides have about `train_characters` and `heldout_characters`, each divided equally among its domains,
      and at least one document per domain.
    - In a folder that holds files of records, text files are left out.

    Memory holds little more than these characters, and a hash of each text in files named `*.heldout.*`.

    Raises:
        InputError: a side has no documents.
    """
    on_drop, dropped = count_dropped()
    files: list[InputFile] = []
    for path in paths:
        found = input_files([path])
        beside = text_next_to_records(found)
        for file in beside:
            on_drop(Dropped(None, file.path, "next to records; give the file by name to read it"))
        files += [file for file in found if file not in beside]
    marked, others = ([file for file in files if is_marked(file.name) == held] for held in (True, False))
    options = options or ReadOptions()
    sides = {TRAIN: Side(train_characters), HELDOUT: Side(heldout_characters)}
    heldout_ranks = set[float]()
    for document in read_files(marked, options, on_drop):
        rank = hash_fraction(document.text)
        heldout_ranks.add(rank)
        sides[HELDOUT].add(rank, document)
    for document in read_files(others, options, on_drop):
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
class Side:
    """Each domain's documents of the lowest ranks, up to the domain's equal part of `characters`.

    It holds no more than the domains seen so far need: if files are sorted by D domains, at most
    1 + 1/2 + … + 1/D times `characters`, and one document more of each.
    """

    characters: int
    domains: dict[str, list[tuple[float, Document]]] = field(default_factory=dict)
    """Ranks and documents of each domain, in rising order of rank."""
    sizes: Counter[str] = field(default_factory=Counter)
    """Characters of each domain's documents."""

    def add(self, rank: float, document: Document) -> None:
        """Add a document, unless there is one with its domain and rank."""
        held = self.domains.setdefault(document.domain, [])
        place = bisect_left(held, rank, key=itemgetter(0))
        if place == len(held) or held[place][0] != rank:
            held.insert(place, (rank, document))
            self.sizes[document.domain] += len(document.text)
            self._cut(document.domain)

    def documents(self) -> list[Document]:
        """The documents, sorted by rank and then domain; at least one per domain."""
        for domain in self.domains:
            self._cut(domain)
        ranked = chain.from_iterable(self.domains.values())
        return [document for _, document in sorted(ranked, key=lambda item: (item[0], item[1].domain))]

    def _cut(self, domain: str) -> None:
        """Drop a domain's documents of the highest ranks while the rest reach its part of `characters`."""
        held, most = self.domains[domain], max(1, self.characters // len(self.domains))
        while self.sizes[domain] - len(held[-1][1].text) >= most:
            self.sizes[domain] -= len(held.pop()[1].text)
