"""HTML from small functions. Every string is escaped unless it is `Html`."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from loriini.common.atomic import write_text


class Html(str):
    """Markup that is not escaped again: made by the functions here, or a plot of this package."""

    __slots__ = ()


REPORT = "report.html"
SENTENCE = 80
"""Characters of a cell above which it wraps."""
STYLESHEET = """
:root { color-scheme: light dark; --paper: #fdfcf9; --ink: #1f2328; --faint: #667080; --line: #dedbd2;
        --card: #f4f2ec; --accent: #c4302b; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171b; --ink: #e5e7ea; --faint: #97a1ae; --line: #32383f;
          --card: #1d2227; --accent: #ff7b78; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1.0625rem/1.6 system-ui, sans-serif;
       overflow-wrap: break-word; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1 { font-size: clamp(1.6rem, 5vw, 2.5rem); line-height: 1.2; margin: 0.3rem 0 1rem; text-wrap: balance; }
h2 { font-size: 1.4rem; line-height: 1.3; margin: 3.5rem 0 0.5rem; }
h3 { font-size: 1.0625rem; margin: 1.6rem 0 0.4rem; }
p, ul { max-width: 44rem; }
a { color: inherit; text-decoration-color: var(--accent); text-underline-offset: 0.2em; }
nav { display: flex; flex-wrap: wrap; gap: 0.3rem 1.2rem; margin: 1.5rem 0; font-size: 0.95rem; }
code, pre { font: 0.88em/1.5 ui-monospace, monospace; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
figure { margin: 1rem 0; }
figure svg { display: block; width: 100%; height: auto; max-width: 36rem; }
figure text { font-family: system-ui, sans-serif !important; }
figcaption, .note { color: var(--faint); font-size: 0.9rem; line-height: 1.5; }
table { border-collapse: collapse; font-size: 0.95rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.35rem 0.9rem 0.35rem 0; text-align: right; vertical-align: top; white-space: nowrap; }
th { font-weight: 600; } tbody th { font-weight: 400; }
tr > :first-child { text-align: left; white-space: normal; }
td.words { text-align: left; white-space: normal; min-width: 20rem; }
tr > :last-child { padding-right: 0; }
thead th, tbody tr + tr > * { border-top: 1px solid var(--line); } thead th { border-top: 0; }
thead th { border-bottom: 2px solid var(--line); }
@media (max-width: 48rem) {
  section:first-of-type :is(th, td) { white-space: normal; font-size: 0.8rem; padding-right: 0.5rem; }
}
.scroll { overflow-x: auto; margin: 1rem 0; }
.kicker { color: var(--accent); font-weight: 600; margin: 0; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 0 2.5rem;
        align-items: start; }
.pair > * { min-width: 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 0.8rem;
         margin: 1.5rem 0; }
.cards div, .text { background: var(--card); border-radius: 0.5rem; padding: 0.8rem 1rem; }
.cards dt { color: var(--faint); font-size: 0.9rem; }
.cards dd { margin: 0; font-size: 1.7rem; font-weight: 600; }
.text { margin: 0 0 0.8rem; } .text .note { margin: 0 0 0.3rem; }
summary { cursor: pointer; margin: 0.8rem 0; }
"""


def join(*children: str) -> Html:
    """The concatenation of the children, text escaped."""
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


def element(name: str, /, *children: str, **attributes: str) -> Html:
    """`<name attributes>children</name>`.

    Underscores of an attribute are hyphens, one at its end is dropped: `class_`, `aria_label`.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )
    end = "" if name == "input" else f"</{name}>"
    return Html(f"<{name}{written}>{join(*children)}{end}")


def paragraph(*children: str) -> Html:
    """`<p>`."""
    return element("p", *children)


def note(*children: str) -> Html:
    """A paragraph in small, faint print."""
    return element("p", *children, class_="note")


def code(text: str) -> Html:
    """A command or a name in monospace."""
    return element("code", text)


def strong(text: str) -> Html:
    """Words in bold."""
    return element("strong", text)


def items(children: Iterable[str]) -> Html:
    """A bulleted list."""
    return element("ul", *(element("li", child) for child in children))


def pair(*children: str) -> Html:
    """Children side by side if the page is wide enough, else one below the other."""
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
    """A table whose first column names the rows; it scrolls if it is wider than the page."""
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    body = (element("tr", element("th", name, scope="row"), *map(_cell, cells)) for name, *cells in rows)
    whole = element("table", element("thead", head), element("tbody", *body))
    return element("div", whole, class_="scroll", tabindex="0")


def _cell(content: str) -> Html:
    """A cell of a table; one of sentences is as wide as the page leaves it."""
    return element("td", content, class_="words") if len(content) > SENTENCE else element("td", content)


def figure(svg: str, caption: str) -> Html:
    """A plot and its caption, which is also its label for screen readers."""
    labelled = svg.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1)
    return element("figure", Html(labelled), element("figcaption", caption))


def section(title: str, *children: str) -> Html:
    """A section with a heading; its id is the `anchor` of its title."""
    return element("section", element("h2", title), *children, id=anchor(title))


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
    """Write a self-contained page: the opening, links to the sections, and the sections; its path.

    Sections are (title, content); those without content are left out. The page's policy lets nothing be
    fetched and no script run but `script`, wherever the text of the page is from.
    """
    shown = [(name, content) for name, content in sections if content is not None]
    links = (element("a", name, href=f"#{anchor(name)}") for name, _ in shown)
    head = join(
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">'),
        element("title", title),
        element("style", Html(STYLESHEET + style)),
    )
    main = element("main", opening, element("nav", *links), *(section(*named) for named in shown))
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
