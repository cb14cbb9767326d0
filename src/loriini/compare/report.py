"""The report of a comparison, made from its results alone."""

from collections.abc import Callable, Mapping, Sequence
from math import expm1, log1p
from pathlib import Path
from typing import Any

from loriini.common.grouping import grouped
from loriini.compare import figures
from loriini.compare.measures import Row, Rows
from loriini.compare.sections import (
    difference_texts,
    expert_use_section,
    grid_section,
    ladder_section,
    learning_section,
    mean_text,
    not_causal_section,
    settings_section,
    trainings_section,
)
from loriini.compare.seeds import in_quadrature, t_factor
from loriini.evaluate.intervals import OVERALL, Difference, clamped
from loriini.reporting import page as p
from loriini.reporting.page import REPORT, Html, write_page
from loriini.reporting.wording import NO_CLEAR_DIFFERENCE, NO_VALUE, is_clear, listing, percent, scored_tokens

UNTESTED = "not tested across seeds"
COLUMNS = ("", "perplexity", "difference", "over seeds", "over held-out text")


def write_comparison(results: Mapping[str, Any], out: Path) -> Path:
    """Write `report.html` into `out` and return its path."""
    shown = shown_variants(results)
    sections = {
        "Ladder": ladder_section(results) if "ladder" in results else None,
        "Perplexity": perplexity_section(results, shown),
        "Remarks": p.items(results["remarks"]) if results["remarks"] else None,
        "By domain": by_domain_section(results, shown),
        "Learning": learning_section(results, shown),
        "Use of experts": expert_use_section(shown),
        "Not causal": not_causal_section(shown),
        "Grid": grid_section(results),
        "Trainings": trainings_section(results),
        "How it was made": settings_section(results),
    }
    title = f"Loriini: {listing(list(labels(shown).values()))}"
    return write_page(out / REPORT, title, opening(results, shown), sections.items())


def summary(results: Mapping[str, Any]) -> tuple[str, list[list[str]], str]:
    """The headline, `perplexity_rows` of the causal variants that were scored, and who has none and why."""
    shown = shown_variants(results)
    names = [v["name"] for v in shown if "perplexity" in v and v["causality"] == "none"]
    note = f"Tokens of {listing(names)} see later ones: only the report has them, apart." if names else ""
    return headline(results, shown), perplexity_rows(scored_causal(shown)), note


def labels(shown: Rows) -> dict[str, str]:
    """Display name of each variant: without swept settings if these short names differ, else in full."""
    short = {v["name"]: " ".join(w for w in v["name"].split(" ") if w not in swept(v)) for v in shown}
    return short if len({*short.values()}) == len(short) else {name: name for name in short}


def swept(variant: Row) -> list[str]:
    """The settings that a sweep chose, as in a variant's name."""
    settings = variant.get("settings", {}).items()
    return [f"{name.rpartition('.')[2]}={value}" for name, value in settings if name.startswith("optimizer.")]


def shown_variants(results: Mapping[str, Any]) -> list[Row]:
    """The chosen variant of each design; of a ladder's, those of the largest size."""
    largest = results["ladder"]["widths"][-1] if "ladder" in results else None
    return [v for v in results["variants"] if v["chosen"] and v.get("width") == largest]


def scored_causal(shown: Rows) -> list[Row]:
    """The variants whose perplexity is known and compares."""
    return [v for v in shown if "perplexity" in v and v["causality"] != "none"]


def opening(results: Mapping[str, Any], shown: Rows) -> Html:
    """The finding, no more than the intervals support, and what makes the trainings unequal."""
    text, ladder = results["heldout"], results.get("ladder")
    said = [f"{len(results['cells'])} trainings of {len(results['variants'])} variants."]
    if ladder:
        widths = listing([str(width) for width in ladder["widths"]])
        said.append(f"They are {widths} wide; sections but the ladder, grid and trainings show the widest.")
    if not text:
        said.append("No model was scored on held-out text, so only the trainings are compared.")
    else:
        said.append(f"All models predict the same held-out tokens: {scored_tokens(text)}.")
    return p.join(
        p.element("p", "Loriini · a comparison", class_="kicker"),
        p.element("h1", headline(results, shown)),
        p.paragraph(" ".join([*said, uncertainty(shown)])),
    )


def headline(results: Mapping[str, Any], shown: Rows) -> str:
    """Which variants predict unseen text better or worse than the baseline, by `verdict_of`."""
    compared = [v for v in shown if "difference" in v]
    if not compared:
        names = listing([v["name"] for v in shown])
        return f"{names}: no differences to show" if results["heldout"] else f"Training of {names}"
    named = labels(shown)
    baseline = named.get(results["baseline"], results["baseline"])
    texts = {
        "better": f"better than {baseline}",
        "worse": f"worse than {baseline}",
        NO_CLEAR_DIFFERENCE: f"{NO_CLEAR_DIFFERENCE} from {baseline}",
        UNTESTED: f"{UNTESTED} against {baseline}",
    }
    of_all = {v["name"]: v["difference"][OVERALL] for v in compared}
    of_verdict = grouped(
        of_all, lambda v: UNTESTED if of_all[v]["seeds"]["low"] is None else verdict_of(of_all[v])
    )
    best = ", at the best settings of each" if any(name != short for name, short in named.items()) else ""
    changes = {name: f"{named[name]} ({percent(values['change'])})" for name, values in of_all.items()}
    parts = (
        f"{text}: {listing([changes[name] for name in of_verdict[verdict]])}"
        for verdict, text in texts.items()
        if verdict in of_verdict
    )
    return f"Perplexity of unseen text{best}, {'; '.join(parts)}"


def verdict_of(intervals: Row) -> str:
    """`better` or `worse` than the baseline, or `no clear difference`, by `over_seeds_and_text`."""
    difference = over_seeds_and_text(intervals)
    if not is_clear(difference):
        return NO_CLEAR_DIFFERENCE
    return "better" if difference.change < 0 else "worse"


def over_seeds_and_text(intervals: Row) -> Difference:
    """A difference with an interval over both, their deviations of log-perplexity added in quadrature.

    It is unknown with one seed.
    """
    logs = [
        [log1p(difference.change), log1p(difference.low), log1p(difference.high)]
        for difference in map(Difference.from_dict, (intervals["seeds"], intervals["documents"]))
    ]
    below, above = in_quadrature((change - low, high - change) for change, low, high in logs)
    change = logs[0][0]
    return Difference(*(expm1(clamped(x)) for x in (change, change - below, change + above)))


def uncertainty(shown: Rows) -> str:
    """What the intervals cover, and how wide a few seeds make them."""
    counts = sorted({len(v["paired_seeds"]) for v in shown if "difference" in v})
    if not counts:
        return ""
    if counts[-1] < 2:
        return (
            "There is one seed, so the intervals cover the choice of held-out text only, and no variant is "
            "called better or worse: another seed easily gives another per cent in short trainings."
        )
    seeds = listing(list(map(str, counts)), "or")
    reach = listing([f"{t_factor(n):.1f}" for n in counts if n > 1], "or")
    return (
        f"Differences are paired by seed. With {seeds} seeds a 95 % interval reaches {reach} standard "
        "deviations to each side. A variant is called better or worse only if an interval over both seeds "
        "and held-out text, whose half-widths are added in quadrature, excludes 0. Each interval stands for "
        "itself: among many variants some differ by chance."
    )


def perplexity_section(results: Mapping[str, Any], shown: Rows) -> Html | None:
    """Mean perplexity of the causal variants, and their differences from the baseline."""
    causal = scored_causal(shown)
    if not causal:
        return None
    compared, rows = [v for v in causal if "difference" in v], perplexity_rows(causal)
    places = {v["name"]: place for place, v in enumerate(shown)}
    caption = f"Left of 0, a variant predicts better than {results['baseline']}. 95 % intervals."
    return p.join(
        p.table(rows[0], rows[1:]),
        p.note(
            "Perplexity is the mean over domains; in brackets the 95 % interval over seeds. Differences are "
            f"from {results['baseline']}. The interval over seeds covers initialisation and order of the "
            "batches; that over held-out text covers the choice of this text, for these trainings."
        ),
        p.figure(figures.differences(compared, results["baseline"], places), caption) if compared else "",
    )


def perplexity_rows(variants: Rows) -> list[list[str]]:
    """COLUMNS, and a row of them for each variant; the second are settings that a sweep chose, if any."""
    named = labels(variants)
    rows = [
        [
            named[v["name"]],
            ", ".join(swept(v)) if named[v["name"]] != v["name"] else "",
            mean_text(v["perplexity"][OVERALL]),
            *(difference_texts(v["difference"][OVERALL]) if "difference" in v else [NO_VALUE] * 3),
        ]
        for v in variants
    ]
    whole = [["", "best settings", *COLUMNS[1:]], *rows]
    return whole if any(row[1] for row in rows) else [[name, *others] for name, _, *others in whole]


def by_domain_section(results: Mapping[str, Any], shown: Rows) -> Html | None:
    """Perplexity, bits per byte and differences of each domain; None of a single one called OVERALL."""
    causal = scored_causal(shown)
    domains = [domain for domain in causal[0]["perplexity"] if domain != OVERALL] if causal else []
    if not domains:
        return None
    tables = [
        p.element("h3", "Perplexity"),
        domain_table(causal, domains, lambda v, domain: mean_text(v["perplexity"][domain])),
        p.element("h3", "Bits per byte, all tokens"),
        domain_table(causal, domains, lambda v, domain: mean_text(v["bits_per_byte"][domain], 3)),
    ]
    if compared := [v for v in causal if "difference" in v]:
        header = ["", "domain", "difference", "over seeds", "over held-out text"]
        rows = [[v["name"], d, *difference_texts(v["difference"][d])] for v in compared for d in domains]
        tables += [p.element("h3", f"Difference from {results['baseline']}"), p.table(header, rows)]
    return p.join(*tables)


def domain_table(variants: Rows, domains: Sequence[str], text_of: Callable[[Row, str], str]) -> Html:
    """A row for each variant and a column for each domain."""
    return p.table(
        ["", *domains], ([v["name"], *(text_of(v, domain) for domain in domains)] for v in variants)
    )
