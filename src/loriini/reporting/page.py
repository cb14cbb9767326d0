"""HTML from small functions. Every string is escaped unless it is `Html`."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from loriini.common.atomic import write_text


class Html(str):
    """Markup that is not escaped again: made by the functions here, or a plot of this package."""

    __slots__ = ()


REPORT = "report.html"
SENTENCE = 80
"""Characters of a cell above which it wraps."""
STYLESHEET = files("loriini.reporting").joinpath("page.css").read_text("utf-8")


def join(*children: str) -> Html:
    """The concatenation of the children, text escaped."""
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


def element(name: str, /, *children: str, **attributes: str) -> Html:
    """`<name attributes>children</name>`.

    In attribute names, a final underscore is dropped and others become hyphens: `class_`, `aria_label`.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )
    end = "" if name == "input" else f"</{name}>"
    return Html(f"<{name}{written}>{join(*children)}{end}")


paragraph = partial(element, "p")
note = partial(element, "p", class_="note")
"""A paragraph in small, faint print."""
code = partial(element, "code")
strong = partial(element, "strong")


def items(children: Iterable[str]) -> Html:
    """A bulleted list."""
    return element("ul", *(element("li", child) for child in children))


def pair(*children: str) -> Html:
    """Children side by side if the page is wide enough, otherwise one below the other."""
    return element("div", *(element("div", child) for child in children), class_="pair")


def quotation(label: str, text: str) -> Html:
    """A text with its line breaks, below a label."""
    return element("div", note(label), element("pre", text), class_="text")


def folded(summary: str, *children: str) -> Html:
    """Children that a click on the summary shows."""
    return element("details", element("summary", summary), *children)


def cards(values: Mapping[str, str]) -> Html:
    """Numbers in large print, each below its name."""
    named = (join(element("dt", name), element("dd", value)) for name, value in values.items())
    return element("dl", *(element("div", card) for card in named), class_="cards")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """A table whose first column names the rows, scrolled if wider than the page; empty without rows."""
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    body = [element("tr", element("th", name, scope="row"), *map(_cell, cells)) for name, *cells in rows]
    if not body:
        return Html()
    whole = element("table", element("thead", head), element("tbody", *body))
    return element("div", whole, class_="scroll", tabindex="0")


def _cell(content: str) -> Html:
    """A cell of a table; the text of long ones wraps."""
    return element("td", content, class_="words") if len(content) > SENTENCE else element("td", content)


def figure(svg: str, caption: str) -> Html:
    """A plot and its caption, which is also its label for screen readers."""
    labelled = svg.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1)
    return element("figure", Html(labelled), element("figcaption", caption))


def anchor(title: str) -> str:
    """The id of a section."""
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def write_page(
    path: Path,
    title: str,
    opening: Html,
    sections: Iterable[tuple[str, Html | None]],
    style: str = "",
    script: str = "",
) -> Path:
    """Write a self-contained page: the opening, links to the sections, and the sections; returns its path.

    Sections are (title, content); those without content are left out. The page's content security policy
    forbids all fetching and every script but `script`, so text from anywhere can be shown.
    """
    shown = [(name, content) for name, content in sections if content]
    links = (element("a", name, href=f"#{anchor(name)}") for name, _ in shown)
    head = join(
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">'),
        element("title", title),
        element("style", Html(STYLESHEET + style)),
    )
    parts = (element("section", element("h2", name), content, id=anchor(name)) for name, content in shown)
    main = element("main", opening, element("nav", *links), *parts)
    body = element("body", main, element("script", Html(script)) if script else "")
    html = join(Html("<!doctype html>\n"), element("html", element("head", head), body, lang="en"))
    write_text(path, html, errors="replace")
    return path


def data(value: Any, id_: str) -> Html:
    """A value as JSON for the page's script, which finds it by its id."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{escape(id_)}">{text}</script>')


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"
