"""Text found on this machine: the Python installation, and the system's headers and documentation.

Four distinct domains: `python` (code without its docstrings), `c` (C and C++ headers), `prose` (docstrings,
and documentation in .rst, .md and .txt) and `metadata` (package descriptions and licences). Every document
belongs to a group, its package or part of a file tree, which is held out in all domains or in none. The same
installation gives the same documents in the same order.
"""

import ast
import inspect
import os
import re
import sys
import sysconfig
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from io import StringIO
from operator import itemgetter
from pathlib import Path, PurePath
from typing import TypeVar

from loriini.common.grouping import grouped
from loriini.common.progress import inform
from loriini.data.read.document import Document
from loriini.data.read.files import as_utf8
from loriini.data.read.sampling import hash_fraction

DOMAIN_CHARACTERS = 8_000_000
LOCAL_HELDOUT_SHARE = 0.1
MIN_CHARACTERS = 200
MAX_LINE = 1_000
LARGEST_SHARE, LARGEST_HELDOUT = 0.25, 0.15
MAX_FILE_BYTES = 100_000
"""Longer files are left out: a single one could be most of a domain's held-out text."""

SYSTEM_PREFIXES = ("/usr", "/usr/local")
C_SUFFIXES = {".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"}
PROSE_SUFFIXES = {".md", ".rst", ".txt"}
LEGAL_NAMES = ("authors", "copying", "copyright", "licence", "license", "metadata", "notice")
# Test data is not prose, and a vendored package is a near-copy of one that may be on the other side.
EXCLUDED = {"_vendor", "_vendored", "externals", "site-packages", "test", "tests", "testdata", "vendor"}

GENERATED = re.compile(r"generated\s+(by|from)\b", re.IGNORECASE)

_Item = TypeVar("_Item")
Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file with its name in document ids, its group, the kind of its text and its size in bytes."""

    path: Path
    name: str
    group: str
    kind: str
    size: int


def collect_local_text(max_characters_per_domain: int = DOMAIN_CHARACTERS) -> dict[str, list[Document]]:
    """Return text found on this machine as {"train": documents, "heldout": documents}, in hash order.

    A domain holds at most `max_characters_per_domain` characters, taken evenly from its groups; about
    LOCAL_HELDOUT_SHARE of it is held out, in whole groups. A domain with only one group is all "train".
    """
    inform("Gathering text from the running Python installation …")
    found = list(local_documents(max_characters_per_domain))
    heldout = heldout_groups(found, LOCAL_HELDOUT_SHARE)
    sides: dict[str, list[Document]] = {"train": [], "heldout": []}
    for domain in sorted({document.domain for document, _ in found}):
        here = [item for item in found if item[0].domain == domain]
        limit = int(max_characters_per_domain * (1 - LOCAL_HELDOUT_SHARE))
        train = _share_out((item for item in here if item[1] not in heldout), limit)
        limit = int(sum(len(d.text) for d in train) * LOCAL_HELDOUT_SHARE / (1 - LOCAL_HELDOUT_SHARE))
        sides["train"] += train
        sides["heldout"] += _share_out((item for item in here if item[1] in heldout), limit)
    return {side: sorted(documents, key=lambda d: hash_fraction(d.id)) for side, documents in sides.items()}


def standard_library(max_characters: int = 1_500_000) -> list[Document]:
    """Return code and docstrings of the Python standard library, about `max_characters`, in hash order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    documents: list[Document] = []
    for path in sorted(root.glob("*.py"), key=lambda p: hash_fraction(as_utf8(p.name))):
        if sum(len(document.text) for document in documents) >= max_characters:
            break
        source = LocalFile(path, as_utf8(path.name), "stdlib", "python", _size(path))
        if source.size <= MAX_FILE_BYTES:
            documents += (d for d in _read(source) if len(d.text.strip()) >= MIN_CHARACTERS)
    return documents


def local_documents(max_characters_per_domain: int = DOMAIN_CHARACTERS) -> Iterator[tuple[Document, str]]:
    """Yield (document, group), without near-copies: up to the limit per kind of file, for Python thrice."""
    endings: set[str] = set()
    for kind, sources in sorted(grouped(_local_files(), lambda source: source.kind).items()):
        # Python files give documents of two domains, and docstrings are a small part of them.
        limit = max_characters_per_domain * (3 if kind == "python" else 1)
        groups = grouped(sources, lambda source: source.group)
        for source in take_evenly(groups, lambda s: s.size, limit, key=lambda s: f"{s.group}/{s.name}"):
            for document in _read(source):
                # copies of a licence differ only at their top
                ending = "".join(document.text[-1_000:].lower().split())
                if len(document.text.strip()) >= MIN_CHARACTERS and ending not in endings:
                    endings.add(ending)
                    yield document, source.group


def separate_docstrings(source: str) -> tuple[str, list[tuple[int, str]]]:
    """Split Python source into code without docstrings, and (line number, cleaned docstring) pairs.

    A docstring on a line with other code stays in the code. Raises SyntaxError or ValueError when
    `source` is not Python of this version.
    """
    lines = list(StringIO(source))  # as Python counts them: splitlines also splits at form feeds
    with warnings.catch_warnings(action="ignore", category=Warning):
        tree = ast.parse(source)
    docstrings = []
    for node in _definitions(tree):
        match node.body[:1]:
            case [ast.Expr(value=ast.Constant(str(text)), lineno=start, end_lineno=int(stop)) as statement]:
                before = lines[start - 1].encode()[: statement.col_offset].decode()
                after = lines[stop - 1].encode()[statement.end_col_offset :].decode().strip()
                if before.strip() or (after and not after.startswith("#")):
                    continue
                alone = len(node.body) == 1 and not isinstance(node, ast.Module)
                lines[start - 1 : stop] = [f"{before}pass\n" if alone else "", *[""] * (stop - start)]
                docstrings.append((start, inspect.cleandoc(text)))
    return "".join(lines), sorted(docstrings)


def _definitions(node: ast.AST) -> Iterator[Definition]:
    """The module, classes and functions in `node`. Expressions contain none and are not visited."""
    if isinstance(node, Definition):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _definitions(child)


def _share_out(pairs: Iterable[tuple[Document, str]], limit: int) -> list[Document]:
    """Documents of at most `limit` characters, taken evenly from their groups."""
    groups = grouped(pairs, itemgetter(1))
    return [d for d, _ in take_evenly(groups, lambda p: len(p[0].text), limit, key=lambda p: p[0].id)]


def _local_files() -> Iterator[LocalFile]:
    """The usable files of packages, the standard library and shared trees, each path once."""
    seen: set[Path] = set()
    for path, *names in [*_package_files(), *_tree_files()]:
        name, group = map(as_utf8, names)
        kind = _kind(PurePath(name))
        if kind and path not in seen and EXCLUDED.isdisjoint(PurePath(name).parts):
            seen.add(path)
            size = _size(path)
            if MIN_CHARACTERS <= size <= MAX_FILE_BYTES:
                yield LocalFile(path, name, group, kind, size)


def _package_files() -> Iterator[tuple[Path, str, str]]:
    """(path, name, group) of the files in the records of installed packages."""
    paths = sysconfig.get_paths()
    packages = distributions(path=sorted({paths["purelib"], paths["platlib"]}))
    installed = {d.name: d for d in packages if d.name}  # a folder that an uninstallation left has none
    for name, distribution in sorted(installed.items()):
        for file in distribution.files or ():
            if ".." not in file.parts:
                yield Path(str(distribution.locate_file(file))), str(file), name


def _tree_files() -> Iterator[tuple[Path, str, str]]:
    """(path, name, group) of the files below each shared folder; every entry at its top is a group."""
    paths = sysconfig.get_paths()
    trees = {
        "stdlib": [Path(paths["stdlib"])],
        "include": [Path(paths["include"]), *(Path(prefix, "include") for prefix in SYSTEM_PREFIXES)],
        "doc": [Path(prefix, "share/doc") for prefix in (sys.prefix, sys.base_prefix, *SYSTEM_PREFIXES)],
    }
    for tree, roots in trees.items():
        for root in roots:
            for path in sorted(root.rglob("*")):
                name = path.relative_to(root)
                if "site-packages" not in name.parts:
                    yield path, f"{tree}/{name.as_posix()}", f"{tree}/{name.parts[0].removesuffix('.py')}"


def _kind(name: PurePath) -> str | None:
    """A file's kind by its name: `python` source, text of domain `c`, `prose` or `metadata`, or None."""
    packaging = name.parts[0].endswith(".dist-info")
    if name.name.lower().startswith(LEGAL_NAMES) and (packaging or name.suffix in {"", *PROSE_SUFFIXES}):
        return "metadata"
    if name.suffix == ".py":
        return "python"
    if name.suffix in C_SUFFIXES or name.parts[:2] == ("include", "c++"):
        return "c"
    return "prose" if name.suffix in PROSE_SUFFIXES and not packaging else None


def _read(source: LocalFile) -> Iterator[Document]:
    """The documents of a file: the code and each docstring of Python source, the whole of any other."""
    name = f"{source.group}:{source.name}"
    try:
        text = source.path.read_text("utf-8")
        if not _is_written(text):
            return
        code, docstrings = separate_docstrings(text) if source.kind == "python" else (text, [])
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    yield Document(name, code, source.kind)
    for line, docstring in docstrings:
        yield Document(f"{name}:{line}", docstring, "prose")


def _is_written(text: str) -> bool:
    """Whether a text looks written, not generated: no long lines, no lists of words or numbers."""
    return (
        "\0" not in text
        and not GENERATED.search(text, 0, 1_000)
        and max(map(len, text.splitlines()), default=0) <= MAX_LINE
        and sum(map(str.isalpha, text)) > 0.4 * len(text)
        and text.count(" ") > 0.05 * len(text)
    )


def _size(path: Path) -> int:
    """A regular file's size in bytes; 0 for anything else."""
    return os.path.getsize(path) if os.path.isfile(path) else 0


def heldout_groups(found: Iterable[tuple[Document, str]], heldout_share: float) -> set[str]:
    """Choose the groups to hold out, so that they have about `heldout_share` of every domain's text.

    Groups are taken in hash order while one of their domains is short of held-out text; a group with more
    than 15 % of any domain's characters is kept for training. If that keeps all groups of a domain with
    several, its smallest is held out.
    """
    sizes: dict[str, Counter[str]] = defaultdict(Counter)
    for document, group in found:
        sizes[document.domain][group] += len(document.text)
    taken: set[str] = set()

    def is_short(domain: str) -> bool:
        held = sum(sizes[domain][group] for group in taken)
        return held < heldout_share * sizes[domain].total()

    def is_large(group: str) -> bool:
        return any(count[group] > LARGEST_HELDOUT * count.total() for count in sizes.values())

    for group in sorted({group for count in sizes.values() for group in count}, key=hash_fraction):
        if not is_large(group) and any(count[group] and is_short(domain) for domain, count in sizes.items()):
            taken.add(group)
    for count in sizes.values():
        if len(count) > 1 and taken.isdisjoint(count):
            taken.add(min(count, key=lambda group: (count[group], group)))
    return taken


def take_evenly(
    groups: Mapping[str, list[_Item]], size: Callable[[_Item], int], limit: int, key: Callable[[_Item], str]
) -> list[_Item]:
    """Choose items of a total size of at most `limit`, as evenly from the groups as their sizes allow.

    No group gives more than a quarter of `limit`, so that none dominates, unless its first item is larger.
    Within a group items are taken in the order of `key`'s hash.
    """
    queue: list[tuple[int, float, _Item]] = []
    for items in groups.values():
        before = 0
        for rank, item in sorted(((hash_fraction(key(item)), item) for item in items), key=itemgetter(0)):
            queue.append((before, rank, item))
            before += size(item)
    chosen, total = list[_Item](), 0
    # The group that has given least so far is next.
    for before, _, item in sorted(queue, key=itemgetter(0, 1)):
        fits = before == 0 or before + size(item) <= LARGEST_SHARE * limit
        if fits and total + size(item) <= limit:
            chosen.append(item)
            total += size(item)
    return chosen
