"""A description of a corpus, as a table for a terminal and as a page: domains, lengths, order, neighbours."""

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loriini.analyze.sections import document_and_nearest
from loriini.common.progress import warn
from loriini.data.prepare.corpus import Corpus
from loriini.data.prepare.inspection import inspect_corpus, neighbor_examples
from loriini.reporting import page as p
from loriini.reporting import plots
from loriini.reporting.page import Html, write_page
from loriini.reporting.wording import large, shared_instance_cosine

Inspection = Mapping[str, Any]

PAGE = "inspect.html"
SHOWN = 6


def inspect_and_write(corpus: Corpus) -> tuple[dict[str, Any], Path | None]:
    """The numbers of `inspect_corpus`, and the path of the page written into the corpus's folder.

    The path is None, with a warning, if that folder is read-only.
    """
    numbers = inspect_corpus(corpus)
    try:
        return numbers, write_corpus_page(corpus.folder, numbers, neighbor_examples(corpus, SHOWN))
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        warn(f"{corpus.folder}: {error.strerror}, so no page is written there")
        return numbers, None


def summary(numbers: Inspection) -> dict[str, str]:
    """The numbers as text, by name."""
    documents, tokens, instances = (numbers[part] for part in ("documents", "tokens", "instances"))
    return {
        "documents": f"{documents['in']:,}, {documents['ordered']:,} of them in the order",
        **({"held out": f"{documents['held_out']:,} documents"} if documents["held_out"] else {}),
        **{f"dropped: {reason}": f"{count:,}" for reason, count in documents["dropped"].items()},
        "tokens": f"{tokens['in']:,}, {tokens['left_out']:,} left out at the end",
        **({"unknown tokens": f"{tokens['unknown']:,}"} if tokens["unknown"] else {}),
        "instances": f"{instances['count']:,} of {instances['length']:,} tokens",
        "tokens a document": _spread(numbers["tokens_per_document"]),
        "documents an instance": _spread(numbers["documents_per_instance"]),
        **{
            f"domain {name}": f"{domain['documents']:,} documents, {domain['tokens']:,} tokens"
            for name, domain in numbers["domains"].items()
        },
        **_similarity(numbers),
    }


def write_corpus_page(folder: Path, numbers: Inspection, examples: Sequence[Mapping[str, Any]]) -> Path:
    """Write `inspect.html` and return its path; sections that the corpus has no data for are left out."""
    cards = {
        "documents": large(numbers["documents"]["in"]),
        "tokens": large(numbers["tokens"]["in"]),
        "instances": large(numbers["instances"]["count"]),
        "tokens an instance": large(numbers["instances"]["length"]),
    }
    similarity = p.table(["", ""], _similarity(numbers).items()) if numbers["neighbors"] else None
    opening = p.join(
        p.element("p", "Loriini", class_="kicker"), p.element("h1", f"Corpus {folder.name}"), p.cards(cards)
    )
    sections = {
        "Documents": _documents_section(numbers),
        "Lengths": _lengths_section(numbers),
        "Order and neighbours": similarity,
        "Documents and their nearest neighbours": p.join(*map(document_and_nearest, examples)),
    }
    return write_page(folder / PAGE, f"Loriini: {folder.name}", opening, sections.items())


def _documents_section(numbers: Inspection) -> Html:
    domains = (
        [name, f"{domain['documents']:,}", f"{domain['tokens']:,}", f"{share:.1%}"]
        for name, domain in numbers["domains"].items()
        for share in [domain["tokens"] / numbers["tokens"]["in"]]
    )
    dropped = [[reason, f"{count:,}"] for reason, count in numbers["documents"]["dropped"].items()]
    documents = numbers["documents"]
    left_out = documents["in"] - documents["ordered"]
    counted = f"{left_out:,} documents that are held out or left out as near-duplicates are counted here."
    return p.join(
        p.table(["domain", "documents", "tokens", "of all tokens"], domains),
        p.note(counted) if left_out else "",
        p.table(["dropped", "documents"], dropped) if dropped else p.note("No document was dropped."),
    )


def _lengths_section(numbers: Inspection) -> Html:
    spreads = {
        "tokens a document": numbers["tokens_per_document"],
        "documents an instance": numbers["documents_per_instance"],
    }
    columns = list(numbers["tokens_per_document"])
    rows = [[name, *(_short(spread[column]) for column in columns)] for name, spread in spreads.items()]
    histogram = numbers["histograms"]["tokens_per_document"]
    drawn = plots.histogram_bars(histogram, "documents by length", "tokens")
    return p.join(p.table(["", *columns], rows), p.figure(drawn, "Documents by their length in tokens."))


def _similarity(numbers: Inspection) -> dict[str, str]:
    """The order, and the cosines of documents that share an instance."""
    order, neighbors = numbers["order"], numbers["neighbors"]
    ordered = numbers["documents"]["ordered"]
    values = {
        "order": order["method"],
        "restarts": _share(order["restarts"], ordered),
        "adjacent pairs that are not neighbours": _share(order["jumps"], ordered),
    }
    for name, mean in numbers["shared_instance_cosine"].items():
        values[f"cosine within an instance, {name} order"] = shared_instance_cosine(mean)
    if neighbors:
        values |= {
            "encoder": f"{neighbors['encoder']}, {neighbors['width']} dimensions",
            "neighbours": f"{neighbors['k']} each; cells: {neighbors['cells']:,}",
        }
    return {name: value for name, value in values.items() if value}


def _spread(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in values.items())


def _short(value: float) -> str:
    return f"{value:,.1f}" if 0 < value < 100 and value % 1 else f"{value:,.0f}"


def _share(count: int | None, of: int) -> str:
    return "" if count is None else f"{count:,} ({count / of:.1%})"
