"""The changelog's section of a tag, on standard output; an error where the tag is no version of the package.

python .ci/release_notes.py v0.1.0
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def release_notes(tag: str, root: Path = ROOT) -> str:
    """The text under `## [VERSION]`. SystemExit where a file has another version."""
    version = tag.removeprefix("v")
    package = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    citation = re.search(r"^version: (.+)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    cited = citation[1] if citation else None
    for file, found in (("pyproject.toml", package), ("CITATION.cff", cited)):
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
