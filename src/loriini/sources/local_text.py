"""Text that is already on the machine: the source, documentation and licences of a Python installation.

Four domains that really differ: `python` (code without its docstrings), `c` (C and C++ headers), `prose`
(docstrings, and documentation in .rst, .md and .txt) and `metadata` (package descriptions and licences).
Every document belongs to a group: the package, or the part of a file tree, that it is from. A group is held
out in all domains or in none. The same installation gives the same documents, in the same order.
"""

import ast
import hashlib
import inspect
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

from loriini.sources.document import Document

MAX_CHARACTERS_PER_DOMAIN = 8_000_000
MIN_CHARACTERS = 200
MAX_LINE = 1_000
MAX_FILE_BYTES = 100_000
"""Longer files are left out: one alone could be most of a domain's held-out text."""
LARGEST_SHARE = 0.25
LARGEST_HELDOUT = 0.15

C_SUFFIXES = {".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"}
PROSE_SUFFIXES = {".md", ".rst", ".txt"}
LEGAL_NAMES = ("authors", "copying", "copyright", "licence", "license", "metadata", "notice")
# Test data is not prose, and a vendored package is a near-copy of one that may be on the other side.
LEFT_OUT = {"_vendor", "_vendored", "externals", "site-packages", "test", "tests", "testdata", "vendor"}

GENERATED = re.compile(r"generated\s+(by|from)\b", re.IGNORECASE)

_Item = TypeVar("_Item")
Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file: where it is, the name and group it goes by, the kind of text it holds, its size in bytes."""

    path: Path
    name: str
    group: str
    kind: str
    size: int


def collect_local_text(
    max_characters_per_domain: int = MAX_CHARACTERS_PER_DOMAIN, heldout_share: float = 0.1
) -> dict[str, list[Document]]:
    """Return the machine's own text as {"train": documents, "heldout": documents}, in hash order.

    A domain holds at most `max_characters_per_domain` characters, take_evenly evenly over its groups; about
    `heldout_share` of them are held out, in whole groups. A domain with only one group is all "train".
    """
    grouped = list(local_documents(max_characters_per_domain))
    heldout = heldout_groups(grouped, heldout_share)
    sides: dict[str, list[Document]] = {"train": [], "heldout": []}
    for domain in sorted({document.domain for document, _ in grouped}):
        here = [item for item in grouped if item[0].domain == domain]
        limit = int(max_characters_per_domain * (1 - heldout_share))
        train = _share_out((item for item in here if item[1] not in heldout), limit)
        limit = int(sum(len(document.text) for document in train) * heldout_share / (1 - heldout_share))
        sides["train"] += train
        sides["heldout"] += _share_out((item for item in here if item[1] in heldout), limit)
    return {side: sorted(documents, key=lambda d: stable_hash(d.id)) for side, documents in sides.items()}


def standard_library(max_characters: int = 1_500_000) -> list[Document]:
    """Return the code and docstrings of the Python standard library, at most that much, in hash order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    documents: list[Document] = []
    for path in sorted(root.glob("*.py"), key=lambda p: stable_hash(p.name)):
        if sum(len(document.text) for document in documents) >= max_characters:
            break
        source = LocalFile(path, path.name, "stdlib", "python", _size(path))
        if source.size <= MAX_FILE_BYTES:
            documents += (d for d in _read(source) if len(d.text.strip()) >= MIN_CHARACTERS)
    return documents


def local_documents(
    max_characters_per_domain: int = MAX_CHARACTERS_PER_DOMAIN,
) -> Iterator[tuple[Document, str]]:
    """Yield (document, group) for the text found, without near-copies: at most thrice the limit a domain."""
    by_kind: dict[str, list[LocalFile]] = defaultdict(list)
    for source in _sources():
        by_kind[source.kind].append(source)
    endings: set[str] = set()
    for kind, sources in sorted(by_kind.items()):
        # Python files feed two domains, and docstrings are but a part of them.
        limit = max_characters_per_domain * (3 if kind == "python" else 1)
        groups = _by_group((source, source.group) for source in sources)
        for source in take_evenly(groups, lambda s: s.size, limit, key=lambda s: f"{s.group}/{s.name}"):
            for document in _read(source):
                if len(document.text.strip()) >= MIN_CHARACTERS and _is_new(document.text, endings):
                    yield document, source.group


def heldout_groups(grouped: Iterable[tuple[Document, str]], heldout_share: float = 0.1) -> set[str]:
    """Choose the groups to hold out, so that every domain has at least `heldout_share` of its text there.

    Groups are taken in hash order while a domain of theirs is short of text; one that holds 15% of any
    domain's characters stays in "train". A domain whose groups are all that large gives up its smallest.
    """
    sizes: dict[str, Counter[str]] = defaultdict(Counter)
    for document, group in grouped:
        sizes[document.domain][group] += len(document.text)
    taken: set[str] = set()

    def missing(domain: str) -> bool:
        there = sum(sizes[domain][group] for group in taken)
        return there < heldout_share * sizes[domain].total()

    def large(group: str) -> bool:
        return any(count[group] > LARGEST_HELDOUT * count.total() for count in sizes.values())

    for group in sorted({group for count in sizes.values() for group in count}, key=stable_hash):
        if not large(group) and any(count[group] and missing(domain) for domain, count in sizes.items()):
            taken.add(group)
    for count in sizes.values():
        if len(count) > 1 and taken.isdisjoint(count):
            taken.add(min(count, key=lambda group: (count[group], group)))
    return taken


def take_evenly(
    groups: Mapping[str, list[_Item]], size: Callable[[_Item], int], limit: int, key: Callable[[_Item], str]
) -> list[_Item]:
    """Choose items of a total size of at most `limit`, as evenly over the groups as these can fill it.

    No group gets more than a quarter of `limit`, so that none sets the tone, unless its first item is larger.
    Inside a group items are taken in the order of `key`'s hash.
    """
    queue: list[tuple[int, str, _Item]] = []
    for items in groups.values():
        before = 0
        for rank, item in sorted(((stable_hash(key(item)), item) for item in items), key=itemgetter(0)):
            queue.append((before, rank, item))
            before += size(item)
    chosen, total = list[_Item](), 0
    # The group that has least so far is served next.
    for before, _, item in sorted(queue, key=itemgetter(0, 1)):
        fits = before == 0 or before + size(item) <= LARGEST_SHARE * limit
        if fits and total + size(item) <= limit:
            chosen.append(item)
            total += size(item)
    return chosen


def stable_hash(text: str) -> str:
    """A hash that is the same in every process."""
    return hashlib.sha256(text.encode()).hexdigest()


def separate_docstrings(source: str) -> tuple[str, list[tuple[int, str]]]:
    """Split Python source into its code without docstrings, and (line number, cleaned docstring) pairs.

    A docstring that shares its line with code stays in the code. Raises SyntaxError or ValueError when
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
                if before.strip():
                    continue
                alone = len(node.body) == 1 and not isinstance(node, ast.Module)
                lines[start - 1 : stop] = [f"{before}pass\n" if alone else "", *[""] * (stop - start)]
                docstrings.append((start, inspect.cleandoc(text)))
    return "".join(lines), sorted(docstrings)


def _definitions(node: ast.AST) -> Iterator[Definition]:
    """The module, classes and functions in `node`. Expressions hold none, so they are not walked."""
    if isinstance(node, Definition):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _definitions(child)


def _by_group(pairs: Iterable[tuple[_Item, str]]) -> dict[str, list[_Item]]:
    groups: dict[str, list[_Item]] = defaultdict(list)
    for item, group in pairs:
        groups[group].append(item)
    return groups


def _share_out(grouped: Iterable[tuple[Document, str]], limit: int) -> list[Document]:
    return take_evenly(_by_group(grouped), lambda d: len(d.text), limit, key=lambda d: d.id)


def _sources() -> Iterator[LocalFile]:
    """Every usable file of the packages, the standard library and the shared trees, each path once."""
    seen: set[Path] = set()
    for path, name, group in [*_package_files(), *_tree_files()]:
        kind = _kind(PurePath(name))
        if kind and path not in seen and LEFT_OUT.isdisjoint(PurePath(name).parts):
            seen.add(path)
            size = _size(path)
            if MIN_CHARACTERS <= size <= MAX_FILE_BYTES:
                yield LocalFile(path, name, group, kind, size)


def _package_files() -> Iterator[tuple[Path, str, str]]:
    """(path, name, group) of the files that installed packages record as theirs."""
    paths = sysconfig.get_paths()
    installed = {d.name: d for d in distributions(path=sorted({paths["purelib"], paths["platlib"]}))}
    for name, distribution in sorted(installed.items()):
        for file in distribution.files or ():
            if ".." not in file.parts:
                yield Path(str(distribution.locate_file(file))), str(file), name


def _tree_files() -> Iterator[tuple[Path, str, str]]:
    """(path, name, group) of the files below each shared folder there is; a group is its first level."""
    paths = sysconfig.get_paths()
    trees = {
        "stdlib": [Path(paths["stdlib"])],
        "include": [Path(paths["include"]), Path("/usr/include"), Path("/usr/local/include")],
        "doc": [Path(prefix, "share/doc") for prefix in (sys.prefix, sys.base_prefix, "/usr", "/usr/local")],
    }
    for tree, roots in trees.items():
        for root in roots:
            for path in sorted(root.rglob("*")):
                name = path.relative_to(root)
                if "site-packages" not in name.parts:
                    yield path, f"{tree}/{name.as_posix()}", f"{tree}/{name.parts[0].removesuffix('.py')}"


def _kind(name: PurePath) -> str | None:
    """What a file holds, by its name: `python` source, or text of the domain `c`, `prose` or `metadata`."""
    packaging = name.parts[0].endswith(".dist-info")
    if name.name.lower().startswith(LEGAL_NAMES) and (packaging or name.suffix in {"", *PROSE_SUFFIXES}):
        return "metadata"
    if name.suffix == ".py":
        return "python"
    if name.suffix in C_SUFFIXES or name.parts[:2] == ("include", "c++"):
        return "c"
    return "prose" if name.suffix in PROSE_SUFFIXES and not packaging else None


def _read(source: LocalFile) -> Iterator[Document]:
    """The documents of a file: of Python source its code and each docstring, of any other the whole."""
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
    """Whether a text was written rather than generated: no long lines, no lists of words or numbers."""
    return (
        "\0" not in text
        and not GENERATED.search(text, 0, 1_000)
        and max(map(len, text.splitlines()), default=0) <= MAX_LINE
        and sum(map(str.isalpha, text)) > 0.4 * len(text)
        and text.count(" ") > 0.05 * len(text)
    )


def _size(path: Path) -> int:
    """A regular file's size in bytes; 0 for anything else, or when it cannot be looked at."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _is_new(text: str, endings: set[str]) -> bool:
    """Whether no earlier text ended alike: copies of a licence or a header differ only at their top."""
    ending = "".join(text[-1_000:].lower().split())
    if ending in endings:
        return False
    endings.add(ending)
    return True
