"""The files beside `docs/` as pages of the site, with links that hold there."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
"""Files of the repository by the names of their pages."""
LINK = re.compile(r"(?<=\]\()(?P<path>[^)#:\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of PAGES."""
    for source, page in PAGES.items():
        text = LINK.sub(lambda link: _from_root(link["path"]), (ROOT / source).read_text())
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of a page to files beside `docs/`, as links to their pages."""
    up = "../" * page.file.src_uri.count("/")
    return LINK.sub(lambda link: _from_docs(link["path"], up), markdown)


def _from_root(path: str) -> str:
    """A path from the repository's root as one from `docs/`."""
    return PAGES.get(path) or (path.removeprefix("docs/") or "index.md" if path.startswith("docs/") else path)


def _from_docs(path: str, up: str) -> str:
    source = path.removeprefix(f"{up}../")
    return f"{up}{PAGES[source]}" if source != path and source in PAGES else path
