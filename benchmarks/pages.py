"""Parts of the docs' pages that are made from results: text between two marks, and a picture below it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- {name}: made by benchmarks/figures.py -->", "<!-- end of {name} -->"


@dataclass(frozen=True)
class Part:
    """A text and a picture of a page, both of one results file."""

    source: str
    """Name of the results file."""
    text: Callable[[Any], str]
    picture: str = ""
    """Name of the picture."""
    caption: str = ""
    draw: Callable[[Any], str] | None = None


def fill(page: Path, parts: Mapping[str, Part], results: Mapping[str, Any]) -> dict[str, str]:
    """Write what results are there for between the marks in a page; returns the pictures by name."""
    text = page.read_text(encoding="utf-8")
    pictures = {}
    for name, part in parts.items():
        if part.source in results:
            begin, end = BEGIN.format(name=name), END.format(name=name)
            made = part.text(results[part.source])
            if part.draw:
                pictures[part.picture] = part.draw(results[part.source])
                made += f"\n\n![{part.caption}](pictures/{part.picture}.svg)"
            before, _, rest = text.partition(begin)
            after = rest.partition(end)[2]
            text = f"{before}{begin}\n\n{made}\n\n{end}{after}" if made else f"{before}{begin}\n{end}{after}"
    page.write_text(text, encoding="utf-8")
    return pictures


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine_text(machine: Mapping[str, Any], precision: str, date: str) -> str:
    """A machine, the precision it computed in, and when."""
    about = (machine["processor"], f"{machine['cores']} cores", precision)
    return ", ".join((*about, f"torch {machine['torch']}", date))
