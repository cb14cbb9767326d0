"""The report of a comparison, made from its results alone."""

from collections.abc import Callable, Mapping, Sequence
from math import expm1, log1p
from pathlib import Path
from typing import Any

from loriini.common.grouping import grouped
from loriini.compare import figures
from loriini.compare.rows import DifferenceRow, VariantRow
from loriini.compare.sections import (
    cells_section,
    difference_texts,
    expert_use_section,
    grid_section,
    ladder_section,
    learning_section,
    mean_text,
    not_causal_section,
    settings_section,
)
from loriini.compare.seeds import in_quadrature, t_factor
from loriini.evaluate.intervals import OVERALL, Difference, clamped
from loriini.reporting import page as p
from loriini.reporting.page import REPORT, Html, write_page
from loriini.reporting.wording import (
    NO_CLEAR_DIFFERENCE,
    NO_VALUE,
    is_clear,
    large,
    listing,
    percent,
    sentence_case,
)

UNTESTED = "not tested across seeds"
COLUMNS = ("", "perplexity", "difference", "over seeds", "over held-out text", "active", "parameters")


def write_comparison(results: Mapping[str, Any], out: Path) -> Path:
    """Write `report.html` into `out` and return its path."""
    shown = shown_variants(results)
    sections = {
        "Ladder": ladder_section(results) if "ladder" in results else None,
        "Perplexity": perplexity_section(results, shown),
        "By domain": by_domain_section(results, shown),
        "Learning": learning_section(results, shown),
        "Use of experts": expert_use_section(shown),
        "Not causal": not_causal_section(shown),
        "Grid": grid_section(results),
        "Cells": cells_section(results),
        "How it was made": settings_section(results),
    }
    title = f"Loriini: {listing([v['name'] for v in shown])}"
    return write_page(out / REPORT, title, opening(results, shown), sections.items())


def headline_and_rows(results: Mapping[str, Any]) -> tuple[str, list[list[str]]]:
    """The headline, and a row of COLUMNS for each causal variant that was scored."""
    shown = shown_variants(results)
    return headline(results, shown), perplexity_rows(scored_causal(shown))


def not_in_rows(results: Mapping[str, Any]) -> str:
    """Which variants were scored and have no row, since their tokens see later ones; empty for none."""
    names = [v["name"] for v in shown_variants(results) if "perplexity" in v and v["causality"] == "none"]
    return f"Tokens of {listing(names)} see later ones: only the report has them, apart." if names else ""


def shown_variants(results: Mapping[str, Any]) -> list[VariantRow]:
    """The chosen variant of each design; of a ladder's, those of the largest size."""
    largest = results["ladder"]["widths"][-1] if "ladder" in results else None
    return [v for v in results["variants"] if v["chosen"] and v.get("width") == largest]


def scored_causal(shown: Sequence[VariantRow]) -> list[VariantRow]:
    """The variants whose perplexity is known and compares."""
    return [v for v in shown if "perplexity" in v and v["causality"] != "none"]


def opening(results: Mapping[str, Any], shown: Sequence[VariantRow]) -> Html:
    """The finding, no more than the intervals support, and what makes the runs unequal."""
    count = len(results["cells"])
    numbers = {len(v["seeds"]) for v in results["variants"]}
    seeds = f"{listing(list(map(str, sorted(numbers))), 'or')} {'seed' if numbers == {1} else 'seeds'}"
    trained = f"{count} {'training' if count == 1 else 'trainings'}, "
    trained += f"{seeds} of each of {len(results['variants'])} variants. "
    text = results["heldout"]
    of_each = "document, which attends to itself alone," if text.get("document_mask") else "instance"
    scored = (
        f"Every model predicts the same held-out tokens, the first {text['skip']} of each {of_each} left out "
        "for all. "
        if text and text["skip"]
        else "Every model predicts the same held-out tokens. "
        if text
        else "No model was scored on held-out text, so only the trainings are compared. "
    )
    widths = results["ladder"]["widths"] if "ladder" in results else []
    of_all_sizes = ["Ladder", *(["Grid"] if results.get("grid") else []), "Cells"]
    sizes = (
        f"They are {len(widths)} sizes, {listing([str(width) for width in widths])} wide; all sections but "
        f"{listing(of_all_sizes)} are of the largest. "
        if widths
        else ""
    )
    return p.join(
        p.element("p", "Loriini · a comparison", class_="kicker"),
        p.element("h1", headline(results, shown)),
        p.paragraph(trained, sizes, scored, uncertainty(shown)),
        p.items(results["remarks"]) if results["remarks"] else "",
    )


def headline(results: Mapping[str, Any], shown: Sequence[VariantRow]) -> str:
    """Which variants predict unseen text better or worse than the baseline, by `verdict_of`."""
    compared = [v for v in shown if "difference" in v]
    baseline = results["baseline"]
    if not compared:
        names = listing([v["name"] for v in shown])
        if len(scored_causal(shown)) > 1:
            return f"{names}: no seeds in common, so no differences to show"
        return f"{names}: no differences to show" if results["heldout"] else f"Training of {names}"
    if len(compared) == 1:
        (variant,) = compared
        change = percent(variant["difference"][OVERALL]["change"])
        verdict = verdict_of(variant["difference"][OVERALL])
        pair = f"{variant['name']} and {baseline}"
        if has_one_seed(variant):
            return f"One seed of {pair}, {UNTESTED}: perplexity {change}"
        if verdict == NO_CLEAR_DIFFERENCE:
            return f"{sentence_case(verdict)} between {pair}: perplexity {change}"
        return f"{variant['name']} predicts unseen text {verdict} than {baseline}: perplexity {change}"
    texts = {
        "better": f"better than {baseline}",
        "worse": f"worse than {baseline}",
        NO_CLEAR_DIFFERENCE: f"{NO_CLEAR_DIFFERENCE} from {baseline}",
        UNTESTED: UNTESTED,
    }
    of_verdict = grouped(
        compared, lambda v: UNTESTED if has_one_seed(v) else verdict_of(v["difference"][OVERALL])
    )
    parts = (
        f"{text}: {listing([v['name'] for v in of_verdict[verdict]])}"
        for verdict, text in texts.items()
        if verdict in of_verdict
    )
    return f"On unseen text, {'; '.join(parts)}"


def verdict_of(intervals: DifferenceRow) -> str:
    """`better` or `worse` than the baseline, or `no clear difference`, by `over_seeds_and_text`."""
    difference = over_seeds_and_text(intervals)
    if not is_clear(difference):
        return NO_CLEAR_DIFFERENCE
    return "better" if difference.change < 0 else "worse"


def over_seeds_and_text(intervals: DifferenceRow) -> Difference:
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


def has_one_seed(variant: VariantRow) -> bool:
    """Whether the difference has no interval over seeds."""
    return variant["difference"][OVERALL]["seeds"]["low"] is None


def uncertainty(shown: Sequence[VariantRow]) -> str:
    """What the intervals cover, and how wide a few seeds make them."""
    compared = [v for v in shown if "difference" in v]
    if not compared:
        return ""
    counts = sorted({len(v["paired_seeds"]) for v in compared})
    if counts[-1] < 2:
        return (
            "There is one seed, so the intervals cover the choice of held-out text only: another seed gives "
            "another difference, easily by a per cent or more in short trainings. From one seed no variant "
            "is called better or worse."
        )
    seeds = listing(list(map(str, counts)), "or")
    reach = listing([f"{t_factor(n):.1f}" for n in counts if n > 1], "or")
    alone = " From one seed there is no interval over seeds, and no variant is called better or worse."
    several = " Each interval stands for itself: among many variants some differ by chance."
    return (
        f"Differences are paired by seed. With {seeds} seeds a 95 % interval reaches {reach} "
        "standard deviations to each side; more seeds make it narrower. A variant is called better or worse "
        "only if an interval over both seeds and held-out text, whose half-widths are added in quadrature, "
        "excludes 0." + (alone if counts[0] < 2 else "") + (several if len(compared) > 2 else "")
    )


def perplexity_section(results: Mapping[str, Any], shown: Sequence[VariantRow]) -> Html | None:
    """Mean perplexity of the causal variants, and their differences from the baseline."""
    causal = scored_causal(shown)
    if not causal:
        return None
    compared, rows = [v for v in causal if "difference" in v], perplexity_rows(causal)
    explained = p.note(
        "Perplexity is the mean over domains; in brackets the 95 % interval over seeds. Differences "
        f"are from {results['baseline']}. The interval over seeds covers initialisation and order of the "
        "batches; that over held-out text covers the choice of this text, for these trainings. Active: "
        "parameters used for a token."
    )
    if not compared:
        return p.join(p.table(COLUMNS, rows), explained)
    places = {v["name"]: place for place, v in enumerate(shown)}
    caption = f"Left of 0, a variant predicts better than {results['baseline']}. 95 % intervals."
    return p.join(
        p.table(COLUMNS, rows),
        explained,
        p.figure(figures.differences(compared, results["baseline"], places), caption),
    )


def perplexity_rows(variants: Sequence[VariantRow]) -> list[list[str]]:
    """A row of COLUMNS for each variant."""
    return [
        [
            v["name"],
            mean_text(v["perplexity"][OVERALL]),
            *(difference_texts(v["difference"][OVERALL]) if "difference" in v else [NO_VALUE] * 3),
            large(v["parameters"]["active"]),
            large(v["parameters"]["total"]),
        ]
        for v in variants
    ]


def by_domain_section(results: Mapping[str, Any], shown: Sequence[VariantRow]) -> Html | None:
    """Perplexity, differences and bits per byte of each domain."""
    causal = scored_causal(shown)
    domains = [domain for domain in causal[0]["perplexity"] if domain != OVERALL] if causal else []
    if not domains:  # a single one may be called OVERALL
        return None
    compared = [v for v in causal if "difference" in v]
    tables = [
        p.element("h3", "Perplexity"),
        domain_table(causal, domains, lambda v, domain: mean_text(v["perplexity"][domain])),
        p.element("h3", "Bits per byte, all tokens"),
        domain_table(causal, domains, lambda v, domain: mean_text(v["bits_per_byte"][domain], 3)),
    ]
    if leaking := [v["name"] for v in causal if v["causality"] == "after_first_segment"]:
        tables += [
            p.paragraph(
                f"They count segment 1, which {listing(leaking)} routes by itself, and may be too low there."
            )
        ]
    if compared:
        header = ["", "domain", "difference", "over seeds", "over held-out text"]
        rows = [
            [v["name"], domain, *difference_texts(v["difference"][domain])]
            for v in compared
            for domain in domains
        ]
        tables += [p.element("h3", f"Difference from {results['baseline']}"), p.table(header, rows)]
    return p.join(*tables)


def domain_table(
    variants: Sequence[VariantRow], domains: Sequence[str], text_of: Callable[[VariantRow, str], str]
) -> Html:
    """A row for each variant and a column for each domain."""
    return p.table(
        ["", *domains], ([v["name"], *(text_of(v, domain) for domain in domains)] for v in variants)
    )
