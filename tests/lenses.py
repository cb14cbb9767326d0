"""Models with a tokenizer of bytes, and what is on the page of a lens."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from tiny import tiny_model

PAIRS = [("a", "l"), ("Ġ", "t"), ("<", "s")]
"""Bytes that are one token together."""
HOSTILE = '</script><script>alert("no")</script>\n    <img src=x onerror=alert(1)> &amp; "naïve" 中文\n'


class Parts(HTMLParser):
    """The tokens, scripts and policy of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tokens: list[str] = []
        self.scripts: list[str] = []
        self.tags: set[str] = set()
        self.policy = ""
        self._open: list[str] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.add(tag)
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"] or ""
        self._open = self.scripts if tag == "script" else None
        if tag == "span" and attributes.get("class") in ("t", "indent"):
            self._open = self.tokens
        if self._open is not None:
            self._open.append("")

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self._open[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    @property
    def data(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.scripts[0])
        return values


def saved(folder: Path, tokenizer: PreTrainedTokenizerFast, design: str = "lory", **changes: Any) -> Path:
    """A model's folder with its tokenizer."""
    eos = tokenizer.eos_token_id
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 24, "eos_token_id": eos}
    tiny_model(design, **sizes, **changes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
