"""Pages of the site that are not files in `docs/`: those of the repository's root, and the commands."""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from loriini.cli import COMMANDS
from loriini.cli.command import CommandParser, find_commands, load_command
from loriini.cli.train import format_overrides
from loriini.train.launch import resolve_recipe
from loriini.train.overrides.names import describe_overrides

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
"""Files of the repository by the names of their pages."""
CITATION = "CITATION.cff"
EXAMPLE = "tiny-lory"
LINK = re.compile(r"(?<=\]\()(?P<path>[^)#:\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of PAGES, that of the commands, and the citation that the first page links to."""
    for source, page in PAGES.items():
        text = LINK.sub(lambda link: _from_root(link["path"]), (ROOT / source).read_text())
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "commands.md", content=commands()))
    files.append(File.generated(config, CITATION, content=(ROOT / CITATION).read_text()))
    return files


def commands() -> str:
    """The help of every command, as Markdown."""
    os.environ["COLUMNS"] = "100"  # argparse breaks lines there
    parsers = {name: CommandParser(name, load_command(e)) for name, e in find_commands(COMMANDS).items()}
    parts = [f"## {name}\n\n```text\n{parser.format_help()}```\n" for name, parser in parsers.items()]
    overrides = format_overrides(describe_overrides(resolve_recipe(EXAMPLE, [])))
    about = f"Of `loriini train {EXAMPLE}`; the values in parentheses are this recipe's."
    parts.append(f"## Overrides\n\n{about}\n\n```text\n{overrides}```\n")
    return "\n".join(["# Commands", *parts])


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
