from hashlib import sha256
from pathlib import Path

import pytest

from loriini.data.read import local_text
from loriini.data.read.document import Document
from loriini.data.read.local_text import (
    LocalFile,
    collect_local_text,
    heldout_groups,
    separate_docstrings,
    take_evenly,
)
from loriini.data.read.sampling import hash_fraction


def test_hash_fractions_are_uniform_and_stable() -> None:
    fractions = [hash_fraction(f"d{i}") for i in range(2000)]
    assert all(0 <= fraction < 1 for fraction in fractions)
    assert 0.47 < sum(fractions) / len(fractions) < 0.53
    assert hash_fraction("lory") == int(sha256(b"lory").hexdigest()[:16], 16) / 16**16


def test_groups_give_equal_shares() -> None:
    groups = {"small": ["s"] * 2, "a": ["a"] * 50, "b": ["b"] * 50, "c": ["c"] * 50, "d": ["d"] * 50}
    chosen = take_evenly(groups, len, 42, key=str)
    assert {name: chosen.count(name) for name in "sabcd"} == {"s": 2, "a": 10, "b": 10, "c": 10, "d": 10}


def test_no_group_gives_more_than_a_quarter() -> None:
    assert len(take_evenly({"only": ["x"] * 100}, len, 40, key=str)) == 10
    assert take_evenly({"only": ["a long first item"]}, len, 40, key=str) == ["a long first item"]


def documents_of(domain: str, **sizes: int) -> list[tuple[Document, str]]:
    return [(Document(f"{domain}/{group}", "x" * size, domain), group) for group, size in sizes.items()]


def test_every_domain_is_held_out_and_large_groups_are_not() -> None:
    small = {f"p{i}": 10 for i in range(30)}
    grouped = documents_of("a", big=200, **small) + documents_of("b", big=10, other=5)
    taken = heldout_groups(grouped, 0.1)
    assert "big" not in taken
    assert "other" in taken
    assert 50 <= sum(small.get(group, 0) for group in taken) <= 70
    assert heldout_groups(documents_of("a", only=100), 0.1) == set()


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


def test_a_docstring_stays_with_code_behind_it() -> None:
    code = 'def f():\n    """kept"""; return 1\ndef g():\n    """taken"""  # a comment\n    return 2\n'
    assert separate_docstrings(code) == (
        'def f():\n    """kept"""; return 1\ndef g():\n    return 2\n',
        [(4, "taken")],
    )


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
    monkeypatch.setattr(local_text, "_local_files", lambda: sources)
    sides = collect_local_text(max_characters_per_domain=20_000)
    groups = {side: {d.id.split(":")[0] for d in documents} for side, documents in sides.items()}
    assert groups["train"].isdisjoint(groups["heldout"])
    for domain in ("python", "prose"):
        size = {side: sum(len(d.text) for d in sides[side] if d.domain == domain) for side in sides}
        assert 0.05 < size["heldout"] / (size["train"] + size["heldout"]) < 0.15
    # The same licence under forty names is one document.
    assert sum(d.domain == "metadata" for documents in sides.values() for d in documents) == 1
    assert collect_local_text(max_characters_per_domain=20_000) == sides


WORDS = "Some plain words of a made-up installation. " * 10
INSTALLED = {
    "site/lory/__init__.py": f'"""{WORDS}"""\n' + "names = 'some plain words of code'\n" * 20,
    "site/lory/guide.md": WORDS + "guide",
    "site/lory/tests/test_lory.py": f'"""{WORDS} test"""\n',
    "site/lory/picture.png": WORDS + "picture",
    "site/lory-1.0.dist-info/METADATA": "Name: lory\nVersion: 1.0\n" + WORDS,
    "site/lory-1.0.dist-info/LICENSE": WORDS + "license",
    "site/left-1.0.dist-info/REQUESTED": "",
    "stdlib/numbers.py": f'"""{WORDS} numbers"""\n' + "numbers = 'more words of code'\n" * 20,
    "stdlib/site-packages/other.py": f'"""{WORDS} other"""\n',
    "include/lory.h": "/* some words of a header */\n" * 20,
    "usr/include/c++/11/vector": "// some words of a header without a suffix\n" * 20,
    "usr/share/doc/lory/README.txt": WORDS + "readme",
    "usr/share/doc/lory/copyright": WORDS + "copyright",
    "usr/share/doc/lory/long.txt": WORDS * 300,
}


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in INSTALLED.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    files = [name.removeprefix("site/") for name in INSTALLED if name.startswith("site/")]
    record = tmp_path / "site" / "lory-1.0.dist-info" / "RECORD"
    record.write_text("".join(f"{name},,\n" for name in [*files, "../outside.py"]))
    site, include = str(tmp_path / "site"), str(tmp_path / "include")
    paths = {"purelib": site, "platlib": site, "stdlib": str(tmp_path / "stdlib"), "include": include}
    monkeypatch.setattr(local_text.sysconfig, "get_paths", lambda: paths)
    monkeypatch.setattr(local_text, "SYSTEM_PREFIXES", (tmp_path / "usr",))
    for prefix in ("prefix", "base_prefix"):
        monkeypatch.setattr(local_text.sys, prefix, str(tmp_path / "python"))


@pytest.mark.usefixtures("installation")
def test_documents_of_an_installation() -> None:
    found = {document.id: (document.domain, group) for document, group in local_text.local_documents()}
    assert found == {
        "lory:lory/__init__.py": ("python", "lory"),
        "lory:lory/__init__.py:1": ("prose", "lory"),
        "lory:lory/guide.md": ("prose", "lory"),
        "lory:lory-1.0.dist-info/METADATA": ("metadata", "lory"),
        "lory:lory-1.0.dist-info/LICENSE": ("metadata", "lory"),
        "stdlib/numbers:stdlib/numbers.py": ("python", "stdlib/numbers"),
        "stdlib/numbers:stdlib/numbers.py:1": ("prose", "stdlib/numbers"),
        "include/lory.h:include/lory.h": ("c", "include/lory.h"),
        "include/c++:include/c++/11/vector": ("c", "include/c++"),
        "doc/lory:doc/lory/README.txt": ("prose", "doc/lory"),
        "doc/lory:doc/lory/copyright": ("metadata", "doc/lory"),
    }


@pytest.mark.usefixtures("installation")
def test_the_standard_library_is_read_up_to_a_limit() -> None:
    documents = local_text.standard_library()
    assert [document.domain for document in documents] == ["python", "prose"]
    assert local_text.standard_library(max_characters=0) == []
