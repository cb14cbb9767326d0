"""The report of a comparison, made from its results alone."""

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from operator import itemgetter
from pathlib import Path
from typing import Any

from loriini.common.grouping import grouped
from loriini.compare import figures
from loriini.compare.measures import Row, Rows
from loriini.compare.seeds import over_seeds_and_text, t_factor
from loriini.compare.trainings import unswept
from loriini.evaluate.intervals import OVERALL, Difference
from loriini.reporting import page as p
from loriini.reporting.page import REPORT, Html, write_page
from loriini.reporting.wording import (
    NO_CLEAR_DIFFERENCE,
    NO_VALUE,
    SEES_LATER,
    duration,
    interval,
    is_clear,
    large,
    listing,
    minus,
    percent,
    scored_tokens,
)

UNTESTED = "not tested across seeds"
COLUMNS = ("", "perplexity", "difference", "over seeds", "over held-out text")
LADDER = ("", "width", "active", "FLOPs", "loss", *COLUMNS[2:])
"""Columns of a ladder's table."""
TRAINED_ON = " ({processor}; trainings at once: {jobs}, threads of each: {threads})"
OVER_SEEDS = " over seeds; band: lowest to highest seed"


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
    settings = variant.get("settings", {})
    compared = unswept(settings)
    return [f"{name.rpartition('.')[2]}={value}" for name, value in settings.items() if name not in compared]


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


def mean_text(over_seeds: Row, digits: int = 2) -> str:
    """A mean and its interval, which need not be symmetric: 12.34 (11.80 to 12.90)."""
    mean, low, high = over_seeds["mean"], over_seeds["low"], over_seeds["high"]
    if mean is None:
        return NO_VALUE
    bounds = "" if low is None else f" ({low:.{digits}f} to {high:.{digits}f})"
    return minus(f"{mean:.{digits}f}{bounds}")


def difference_texts(difference: Row) -> list[str]:
    """The change and both of its intervals."""
    seeds, documents = map(Difference.from_dict, (difference["seeds"], difference["documents"]))
    over_seeds = "one seed" if isnan(seeds.low) else interval(seeds)
    return [percent(difference["change"]), over_seeds, interval(documents)]


def ladder_section(results: Mapping[str, Any]) -> Html | None:
    """Every design at every size, and a line fitted to each design; None if nothing was scored."""
    measured = [design for design in results["ladder"]["designs"] if "flops" in design]
    if not measured:
        return None
    fitted = [design for design in measured if "line" in design]
    caption = "Means and intervals over seeds, and a line fitted to each design's points."
    return p.join(
        p.figure(figures.loss_over_compute(measured), caption),
        p.table(LADDER, sizes_rows(results, measured)),
        p.note(
            "Loss is the mean over domains of the held-out loss, nats a token. Differences are of the mean "
            f"perplexity over domains, from {results['ladder']['baseline']} of the same size. FLOPs are of "
            "the whole training."
        ),
        p.element("h3", "Fitted lines: loss = a · FLOPs^(−b)"),
        p.table(
            ["", "a", "b"],
            ([d["name"], f"{d['line']['a']:.3g}", mean_text(d["line"]["b"], 4)] for d in fitted),
        ),
        p.note("Fitted to each seed by least squares of logarithms; in brackets the interval over seeds."),
    )


def sizes_rows(results: Mapping[str, Any], designs: Rows) -> list[list[str]]:
    """A row of LADDER for each design and size."""
    variants = {v["name"]: v for v in results["variants"]}
    rows = []
    for design in designs:
        by_width = {variants[name]["width"]: variants[name] for name in design["variants"]}
        for width, flops, loss in zip(design["widths"], design["flops"], design["loss"], strict=True):
            v = by_width[width]
            difference = difference_texts(v["difference"][OVERALL]) if "difference" in v else [NO_VALUE] * 3
            size = [str(width), large(v["parameters"]["active"]), f"{flops:.3g}", mean_text(loss, 3)]
            rows.append([v["name"], *size, *difference])
    return rows


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
        header = ["", "domain", *COLUMNS[2:]]
        rows = [[v["name"], d, *difference_texts(v["difference"][d])] for v in compared for d in domains]
        tables += [p.element("h3", f"Difference from {results['baseline']}"), p.table(header, rows)]
    return p.join(*tables)


def domain_table(variants: Rows, domains: Sequence[str], text_of: Callable[[Row, str], str]) -> Html:
    """A row for each variant and a column for each domain."""
    return p.table(
        ["", *domains], ([v["name"], *(text_of(v, domain) for domain in domains)] for v in variants)
    )


def learning_section(results: Mapping[str, Any], shown: Rows) -> Html | None:
    """Training loss over tokens, FLOPs and seconds."""
    trained = grouped((cell for cell in results["cells"] if "curve" in cell), itemgetter("name"))
    curves = {
        v["name"] + later_tokens_mark(v["training_causality"]): cells_with_equal_steps(trained[v["name"]])
        for v in shown
        if v["name"] in trained
    }
    if not curves:
        return None
    machine = results.get("machine")
    trained_on = TRAINED_ON.format_map(machine) if machine else ""
    several = any(len(cells) > 1 for cells in curves.values())
    captions = {
        "tokens": f"Line: running mean{OVER_SEEDS if several else ''}. The initial drop is cut off.",
        "flops": "The same over computation: forward and backward, attention and merging included.",
        "seconds": f"The same over time in training steps, without evaluation and checkpoints{trained_on}.",
    }
    drawn = (p.figure(figures.learning_curves(curves, axis), text) for axis, text in captions.items())
    return p.join(p.pair(*drawn), first_segment_note(shown))


def later_tokens_mark(causality: str) -> str:
    """The mark after the name of a variant whose losses cannot be compared with the others'."""
    return SEES_LATER if causality == "none" else ""


def cells_with_equal_steps(cells: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Cells whose curves have the same steps: the longest of those that finished, or of all if none did."""
    finished = [cell for cell in cells if cell["state"] == "finished"]
    longest = max(cell["steps"] for cell in finished or cells)
    return [cell for cell in finished or cells if cell["steps"] == longest]


def first_segment_note(shown: Rows) -> Html:
    """A remark on variants whose training loss counts a first segment that is routed by itself."""
    names = [v["name"] for v in shown if v["training_causality"] == "after_first_segment"]
    said = (
        f"In training {listing(names)} may route the first segment of an instance by the tokens to be "
        "predicted there; a loss that counts them is too low beside the others'."
    )
    return p.note(said) if names else p.join()


def expert_use_section(shown: Rows) -> Html | None:
    """How the variants used their experts at the end of training."""
    routed = [v for v in shown if "experts_in_use" in v]
    if not routed:
        return None
    rows = []
    for v in routed:
        utilised = f"{100 * v['utilisation']:.0f} %" if "utilisation" in v else NO_VALUE
        counts = (v["experts_in_use"], v["experts_per_decision"], v["experts_by_score"])
        shown_counts = (NO_VALUE if count is None else f"{count:.2f}" for count in counts)
        rows.append([v["name"], f"{v['experts']:.0f}", utilised, *shown_counts])
    header = ["", "experts", "utilisation", "in use", "per decision", "by score"]
    return p.join(
        p.table(header, rows),
        p.note(
            "Means over layers, seeds and the last tenth of the steps. Utilisation: experts active at least "
            "once in ten steps (chosen by a unit; where every unit gets every expert, a weight above twice "
            "the even share). In use: the exponential of the entropy of the load, all experts if it is "
            "even. Per decision: that of the gates. By score: that of the softmax of the scores, 1 if "
            "decisions are certain."
        ),
    )


def not_causal_section(shown: Rows) -> Html | None:
    """Perplexity of variants whose tokens see later ones, apart from the others."""
    leaking = [v for v in shown if v["causality"] == "none"]
    if not leaking:
        return None
    rows = [
        [v["name"], mean_text(v["perplexity"][OVERALL]) if "perplexity" in v else NO_VALUE] for v in leaking
    ]
    return p.join(
        p.paragraph(
            p.strong("These perplexities are not comparable with the others': "),
            "a token's experts depend on its whole sequence, the tokens to be predicted included.",
        ),
        p.table(["", f"perplexity{SEES_LATER}"], rows),
    )


def grid_section(results: Mapping[str, Any]) -> Html | None:
    """Every point of the grid, and how the best settings were chosen."""
    variants = results["variants"]
    if all(v["chosen"] for v in variants) and not any(v["settings"] for v in variants):
        return None
    rows = [
        [
            v["name"],
            mean_text(v["training_loss"], 3) if "training_loss" in v else NO_VALUE,
            mean_text(v["perplexity"][OVERALL]) if "perplexity" in v else NO_VALUE,
            ("chosen" if v["chosen"] else "") + later_tokens_mark(v["causality"]),
        ]
        for v in variants
    ]
    how = (
        "Every point of the grid is a variant of its own in the other sections."
        if all(v["chosen"] for v in variants)
        else "Of points that differ in the optimizer's settings alone, the one with the most finished seeds "
        "and then the lowest training loss in the last tenth of its steps is in the other sections. The "
        "choice makes its loss a little too low: compare designs by the best points with other seeds."
    )
    return p.join(p.table(["", "training loss", "perplexity", ""], rows), p.note(how))


def trainings_section(results: Mapping[str, Any]) -> Html:
    """Every training, with its folder."""
    rows = [
        [
            c["name"],
            str(c["seed"]),
            c.get("state", NO_VALUE) + (f": {c['error']}" if "error" in c else ""),
            f"{c['steps']:,}" if "steps" in c else NO_VALUE,
            large(c["tokens"]) if "tokens" in c else NO_VALUE,
            *(large(c["parameters"][key]) if "parameters" in c else NO_VALUE for key in ("active", "total")),
            f"{c['training_loss']:.3f}" if c.get("training_loss") is not None else NO_VALUE,
            f"{c['mean_perplexity']:.2f}" if c.get("mean_perplexity") is not None else NO_VALUE,
            duration(c["seconds"]) if "seconds" in c else NO_VALUE,
            c["folder"],
        ]
        for c in results["cells"]
    ]
    of_model = ["active", "parameters", "training loss"]
    header = ["", "seed", "state", "steps", "tokens", *of_model, "perplexity", "time", "folder"]
    return p.table(header, rows)


def settings_section(results: Mapping[str, Any]) -> Html:
    """The settings that made the comparison."""
    text, machine = results["heldout"], results.get("machine", {})
    rows = {
        "recipe": results.get("recipe"),
        "overrides": " ".join(results.get("overrides", [])),
        "grid": " ".join(f"{name}={','.join(values)}" for name, values in results.get("grid", {}).items()),
        "corpus": listing(results.get("corpus", [])),
        "runs": listing(results.get("runs", [])),
        "held-out documents": listing(text.get("documents", [])),
        "held-out instances": ", ".join(
            f"{name} {count:,}" for name, count in text.get("instances", {}).items()
        ),
        "held-out tokens": scored_tokens(text) if text else None,
        "machine": ", ".join(f"{key} {value}" for key, value in machine.items()),
        "date": results.get("date"),
    }
    return p.table(["setting", "value"], ([name, value] for name, value in rows.items() if value))
