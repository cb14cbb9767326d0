"""The changelog's section of a tag, on standard output; an error where the tag is no version of the package.

python .ci/release_notes.py v0.1.0
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = {
    "pyproject.toml": r'^version = "(.+)"$',
    "src/loriini/__init__.py": r'^__version__ = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
}
"""How each file states the version."""


def release_notes(tag: str, root: Path = ROOT) -> str:
    """The text under `## [VERSION]`. SystemExit where a file has another version."""
    version = tag.removeprefix("v")
    for file, pattern in VERSIONS.items():
        stated = re.search(pattern, (root / file).read_text(), re.MULTILINE)
        found = stated[1] if stated else None
        if found != version:
            raise SystemExit(f"{file} has version {found}, the tag is {tag}; change one of them")
    sections = re.split(r"^## ", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    for section in sections:
        heading, _, text = section.partition("\n")
        if heading.startswith(f"[{version}]"):
            return text.strip()
    raise SystemExit(f"CHANGELOG.md has no section [{version}]; rename [Unreleased]")


if __name__ == "__main__":
    print(release_notes(sys.argv[1]))
