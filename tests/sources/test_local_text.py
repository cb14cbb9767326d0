from pathlib import Path

import pytest

from loriini.sources import local_text
from loriini.sources.document import Document
from loriini.sources.local_text import (
    LocalFile,
    collect_local_text,
    heldout_groups,
    separate_docstrings,
    take_evenly,
)

CODE = '''"""Module
words."""
x = """not a docstring"""
class A:
    """Class words."""
    def f(self):
        """Only words."""
    def g(self): "same line"
'''


def test_docstrings_are_taken_out_of_the_code() -> None:
    code, docstrings = separate_docstrings(CODE)
    assert docstrings == [(1, "Module\nwords."), (5, "Class words."), (7, "Only words.")]
    assert code == (
        'x = """not a docstring"""\nclass A:\n    def f(self):\n        pass\n    def g(self): "same line"\n'
    )
    compile(code, "code", "exec")


def test_spread_gives_every_group_the_same_room() -> None:
    groups = {"small": ["s"] * 2, "a": ["a"] * 50, "b": ["b"] * 50, "c": ["c"] * 50, "d": ["d"] * 50}
    chosen = take_evenly(groups, len, 42, key=str)
    assert {name: chosen.count(name) for name in "sabcd"} == {"s": 2, "a": 10, "b": 10, "c": 10, "d": 10}


def test_no_group_takes_more_than_a_quarter() -> None:
    assert len(take_evenly({"only": ["x"] * 100}, len, 40, key=str)) == 10
    assert take_evenly({"only": ["a long first item"]}, len, 40, key=str) == ["a long first item"]


def documents_of(domain: str, **sizes: int) -> list[tuple[Document, str]]:
    return [(Document(f"{domain}/{group}", "x" * size, domain), group) for group, size in sizes.items()]


def test_every_domain_is_held_out_and_large_groups_are_not() -> None:
    small = {f"p{i}": 10 for i in range(30)}
    grouped = documents_of("a", big=200, **small) + documents_of("b", big=10, other=5)
    taken = heldout_groups(grouped)
    assert "big" not in taken
    assert "other" in taken
    assert 50 <= sum(small.get(group, 0) for group in taken) <= 70
    assert heldout_groups(documents_of("a", only=100)) == set()


def local_source(folder: Path, package: int, name: str, kind: str, text: str) -> LocalFile:
    path = folder / f"{package}-{name}"
    path.write_text(text)
    return LocalFile(path, name, f"p{package}", kind, len(text))


def test_gather_keeps_groups_on_one_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "some plain words for a test of this\n"
    sources = []
    for i in range(40):
        code = f'"""{words * 8}{i}"""\n' + f"value = 'a few words of code {i}'\n" * 20
        sources += [
            local_source(tmp_path, i, "a.py", "python", code),
            local_source(tmp_path, i, "a.md", "prose", words * 9 + f"book {i}"),
            local_source(tmp_path, i, "LICENSE", "metadata", f"Copyright {i}\n" + words * 40),
        ]
    monkeypatch.setattr(local_text, "_sources", lambda: sources)
    sides = collect_local_text(max_characters_per_domain=20_000)
    groups = {side: {d.id.split(":")[0] for d in documents} for side, documents in sides.items()}
    assert groups["train"].isdisjoint(groups["heldout"])
    for domain in ("python", "prose"):
        size = {side: sum(len(d.text) for d in sides[side] if d.domain == domain) for side in sides}
        assert 0.05 < size["heldout"] / (size["train"] + size["heldout"]) < 0.15
    # The same licence under forty names is one document.
    assert sum(d.domain == "metadata" for documents in sides.values() for d in documents) == 1
    assert collect_local_text(max_characters_per_domain=20_000) == sides


def test_this_installation_has_text() -> None:
    sides = collect_local_text(max_characters_per_domain=60_000)
    for documents in sides.values():
        assert {"python", "prose"} <= {document.domain for document in documents}
        assert all(len(document.text) <= local_text.MAX_FILE_BYTES for document in documents)
