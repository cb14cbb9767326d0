"""Runs that a report is made of, with hostile names, and what is on its page."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from loriini.analyze.routes import Routes
from loriini.reporting.page import Html

HOSTILE = "<script>alert('1')</script>"


class Page(HTMLParser):
    """The tags and attributes of a page, its headings and its text; unclosed tags are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: set[str] = set()
        self.headings: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links |= {value or "" for key, value in attrs if key in ("href", "src", "xlink:href")}
        assert not any(key.startswith("on") for key, _ in attrs)
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open and self._open[-1] in ("h1", "h2"):
            self.headings.append(data)


def text_of(part: Html | None) -> str:
    assert part is not None
    return Page(part).text


def dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def metrics(dense: int, steps: int = 24) -> str:
    routed = {"experts": 4, "gate_entropy": [1.3, 1.2], "active": [1, 6]}
    routed |= {
        "load": [[0.35, 0.15, 0.25, 0.25]] * 2,
        "load_entropy": [1.4, 1.4],
        "confidence_entropy": [1.3, 1.3],
    }
    rows = (
        {"step": i, "loss": 5 - i / 10, "tokens": 64 * i, "tokens_per_second": 100.0}
        | ({"experts": 1} if i <= dense else routed)
        for i in range(1, steps + 1)
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_run(folder: Path, dense_steps: int) -> None:
    """The files of a run that a report reads, and its routes by two domains."""
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(metrics(dense_steps))
    gates = np.array([[[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1]]] * 2)
    units, bits, none = np.array([10, 10]), np.full(2, 0.5), np.zeros(2)
    routes = Routes(10 * gates, gates, np.ones((2, 2)), bits, none, units, units, ("python", HOSTILE))
    routes.save(folder / "routes.npz")
    dump(folder / "run.json", {"name": folder.name, "routing": {"selection": "all"}})
