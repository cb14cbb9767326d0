"""What the name of a file says: its domain and its split."""

import os
import re
from collections.abc import Sequence
from itertools import chain, takewhile
from pathlib import Path

TRAIN, HELDOUT = "train", "heldout"
HELDOUT_MARK = f".{HELDOUT}."
"""Part of the name of a held-out file."""
HELDOUT_DOCUMENTS = "documents.jsonl"
"""In the folder `heldout` of a corpus: the documents that are not trained on."""
SPLITS = (TRAIN, "validation", "valid", "val", "dev", "test", "eval", HELDOUT)
"""Names of splits on the Hub, and ours."""
SHARD = re.compile(r"(-\d+-of-\d+|([-_]\d+)*[-_](?!(19|20)\d\d(\d\d){0,2}$)\d{3,})$")
"""How the name of a shard ends: `-3-of-64`, `_0012`, `_000_00003`. Dates such as `_2024` or `-20240131` and
numbers of one or two digits do not mark a shard."""
SAYS_NOTHING = re.compile(rf"({'|'.join(SPLITS)}|part|shard|chunk|file|data)?([-_]?\d+)*")
"""Names of files and folders that do not say what their text is: a split's, `part-0`, `0003`."""
SPLIT = re.compile(rf"(?:^|[-_./])({'|'.join(SPLITS)})(?=[-_./])")
"""A split's name inside one part of the path of a data set's file."""
WHOLE_NAME = re.compile(rf"({'|'.join(SPLITS)})(?:[-_.]?\d[^.]*)?(?:\..*)?")
"""A part of a path that is a split's name, apart from numbers and suffixes."""


def domain_from_name(file: str, folders: Sequence[str] = ()) -> str:
    """The domain that a file's name states: the name up to its first dot, without the numbers of a shard.

    If that says nothing (SAYS_NOTHING), the first of `folders` that says something, else the last of them.
    """
    whole = file.rsplit("/", 1)[-1]
    name = SHARD.sub("", whole.lstrip(".").split(".", 1)[0])
    telling = (each for each in (name, *folders) if not SAYS_NOTHING.fullmatch(each))
    return next(telling, "".join(folders[-1:]) or name or whole)


def folders_above(path: Path) -> list[str]:
    """The names of the two folders above a file, the nearest first: they may name its domain."""
    return [folder.name for folder in path.absolute().parents[:2]]


def is_marked(path: str) -> bool:
    """Whether a file is held out by its own name, `*.heldout.*`."""
    return HELDOUT_MARK in os.path.basename(path)


def heldout_files(paths: Sequence[str], folders: int | None = 1) -> list[str]:
    """The files that are held out by name: `*.heldout.*`, or those of another split than `train`.

    A split's name is looked for in the file's name and its last `folders` folders (None: all), except folders
    that all files share. Splits count only if one is `train`. [] if all files would be held out.
    """
    parts = [path.split("/") for path in paths]
    columns = zip(*(each[:-1] for each in parts), strict=False)
    shared = sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, columns))
    first = None if folders is None else -1 - folders
    named = (split_of("/".join(each[shared:][first:])) for each in parts)
    splits = {path: split for path, split in zip(paths, named, strict=True) if split}
    is_split = TRAIN in splits.values()
    held = [p for p in paths if is_marked(p) or (is_split and splits.get(p, TRAIN) != TRAIN)]
    return held if len(held) < len(paths) else []


def split_of(path: str) -> str | None:
    """The split of a data set's file, from the names of the file and its folders; None if they have none.

    The first of them, from the file outwards, that is a split's name (`WHOLE_NAME`); if there is none, the
    first that contains one (`SPLIT`).
    """
    parts = path.split("/")[::-1]
    whole = (WHOLE_NAME.fullmatch(part) for part in parts)
    within = (SPLIT.search(f"{part}/") for part in parts)
    return next((match[1] for match in chain(whole, within) if match), None)
