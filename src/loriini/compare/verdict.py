"""What a comparison says in words: which variants it shows, by which names, and which of them are better."""

from collections.abc import Mapping
from typing import Any

from loriini.common.grouping import grouped
from loriini.compare.measures import Row, Rows
from loriini.compare.seeds import over_seeds_and_text, t_factor
from loriini.compare.trainings import short_name, unswept
from loriini.evaluate.intervals import OVERALL
from loriini.reporting.wording import NO_CLEAR_DIFFERENCE, is_clear, listing, percent

UNTESTED = "not tested across seeds"


def shown_variants(results: Mapping[str, Any]) -> list[Row]:
    """The variants that a sweep chose, or all without one; of a ladder, only those of the largest width."""
    largest = results["ladder"]["widths"][-1] if "ladder" in results else None
    return [v for v in results["variants"] if v["chosen"] and v.get("width") == largest]


def scored_causal(shown: Rows) -> list[Row]:
    """The variants that are causal and were scored on held-out text."""
    return [v for v in shown if "perplexity" in v and v["causality"] != "none"]


def labels(shown: Rows) -> dict[str, str]:
    """Display name of each variant: without swept settings if these short names differ, else in full."""
    short = {v["name"]: short_name(v) for v in shown}
    return short if len({*short.values()}) == len(short) else {name: name for name in short}


def swept(variant: Row) -> list[str]:
    """The settings that a sweep chose, as in a variant's name."""
    settings = variant.get("settings", {})
    compared = unswept(settings)
    return [f"{name.rpartition('.')[2]}={value}" for name, value in settings.items() if name not in compared]


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


def uncertainty(shown: Rows) -> str:
    """What the intervals cover, and how wide they are with few seeds."""
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
