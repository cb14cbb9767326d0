"""The report of a comparison, made from its results alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan
from operator import itemgetter
from pathlib import Path
from typing import Any

from loriini.common.grouping import grouped
from loriini.compare import figures
from loriini.compare.measures import Row, Rows
from loriini.compare.verdict import headline, labels, scored_causal, shown_variants, swept, uncertainty
from loriini.evaluate.intervals import OVERALL, Difference
from loriini.reporting import page as p
from loriini.reporting.page import REPORT, Html, write_page
from loriini.reporting.wording import (
    NO_VALUE,
    SEES_LATER,
    duration,
    interval,
    large,
    listing,
    minus,
    percent,
    scored_tokens,
)

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
    """The headline, `perplexity_rows` of scored causal variants, and a note on those that are not."""
    shown = shown_variants(results)
    names = [v["name"] for v in shown if "perplexity" in v and v["causality"] == "none"]
    note = f"Tokens of {listing(names)} see later ones: only the report has them, apart." if names else ""
    return headline(results, shown), perplexity_rows(scored_causal(shown)), note


def opening(results: Mapping[str, Any], shown: Rows) -> Html:
    """The headline, what was trained and on which tokens it was scored, and what the intervals cover."""
    said = [f"{len(results['cells'])} trainings of {len(results['variants'])} variants."]
    if "ladder" in results:
        widths = listing([str(width) for width in results["ladder"]["widths"]])
        said.append(f"They are {widths} wide; sections but the ladder, grid and trainings show the widest.")
    if text := results["heldout"]:
        said.append(f"All models predict the same held-out tokens: {scored_tokens(text)}.")
    else:
        said.append("No model was scored on held-out text, so only the trainings are compared.")
    return p.join(
        p.element("p", "Loriini · a comparison", class_="kicker"),
        p.element("h1", headline(results, shown)),
        p.paragraph(" ".join([*said, uncertainty(shown)])),
    )


def text_of(row: Row, key: str, written: Callable[[Any], str]) -> str:
    """The value of `key` as formatted by `written`; NO_VALUE if it is None or missing."""
    return NO_VALUE if (value := row.get(key)) is None else written(value)


def mean_text(over_seeds: Row | None, digits: int = 2) -> str:
    """A mean and its interval, which need not be symmetric: 12.34 (11.80 to 12.90)."""
    if over_seeds is None or over_seeds["mean"] is None:
        return NO_VALUE
    mean, low, high = over_seeds["mean"], over_seeds["low"], over_seeds["high"]
    bounds = "" if low is None else f" ({low:.{digits}f} to {high:.{digits}f})"
    return minus(f"{mean:.{digits}f}{bounds}")


def difference_texts(variant: Row, domain: str = OVERALL) -> list[str]:
    """A variant's change from the baseline and its two intervals; three NO_VALUE if it was not compared."""
    if "difference" not in variant:
        return [NO_VALUE] * 3
    difference = variant["difference"][domain]
    seeds, documents = map(Difference.from_dict, (difference["seeds"], difference["documents"]))
    over_seeds = "one seed" if isnan(seeds.low) else interval(seeds)
    return [percent(difference["change"]), over_seeds, interval(documents)]


def ladder_section(results: Mapping[str, Any]) -> Html | None:
    """Every design at every size, and a line fitted to each design; None if nothing was scored."""
    measured = [design for design in results["ladder"]["designs"] if "flops" in design]
    if not measured:
        return None
    fitted = ((design["name"], design["line"]) for design in measured if "line" in design)
    lines = ([name, f"{line['a']:.3g}", mean_text(line["b"], 4)] for name, line in fitted)
    caption = "Means and intervals over seeds, and a line fitted to each design's points."
    return p.join(
        p.figure(figures.loss_over_compute(measured), caption),
        p.table(["", "width", "active", "FLOPs", "loss", *COLUMNS[2:]], sizes_rows(results, measured)),
        p.note(
            "Loss is the mean over domains of the held-out loss, nats a token. Differences are of the mean "
            f"perplexity over domains, from {results['ladder']['baseline']} of the same size. FLOPs are of "
            "the whole training."
        ),
        p.element("h3", "Fitted lines: loss = a · FLOPs^(−b)"),
        p.table(["", "a", "b"], lines),
        p.note("Fitted to each seed by least squares of logarithms; in brackets the interval over seeds."),
    )


def sizes_rows(results: Mapping[str, Any], designs: Rows) -> Iterator[list[str]]:
    """For each design and size its width, active parameters, FLOPs and loss, and `difference_texts`."""
    variants = {v["name"]: v for v in results["variants"]}
    for design in designs:
        by_width = {variants[name]["width"]: variants[name] for name in design["variants"]}
        for width, flops, loss in zip(design["widths"], design["flops"], design["loss"], strict=True):
            v = by_width[width]
            size = [str(width), large(v["parameters"]["active"]), f"{flops:.3g}", mean_text(loss, 3)]
            yield [v["name"], *size, *difference_texts(v)]


def perplexity_section(results: Mapping[str, Any], shown: Rows) -> Html | None:
    """Mean perplexity of the causal variants, and their differences from the baseline."""
    causal = scored_causal(shown)
    if not causal:
        return None
    compared, rows = [v for v in causal if "difference" in v], perplexity_rows(causal)
    colors = {v["name"]: color for color, v in enumerate(shown)}
    caption = f"Left of 0, a variant predicts better than {results['baseline']}. 95 % intervals."
    return p.join(
        p.table(rows[0], rows[1:]),
        p.note(
            "Perplexity is the mean over domains; in brackets the 95 % interval over seeds. Differences are "
            f"from {results['baseline']}. The interval over seeds covers initialisation and order of the "
            "batches; that over held-out text covers the choice of this text, for these trainings."
        ),
        p.figure(figures.differences(compared, results["baseline"], colors), caption) if compared else "",
    )


def perplexity_rows(variants: Rows) -> list[list[str]]:
    """The header COLUMNS and a row per variant; if a sweep chose settings, these are a second column."""
    named = labels(variants)
    chosen = any(short != name for name, short in named.items())
    rows = [
        [
            named[v["name"]],
            *([", ".join(swept(v))] if chosen else []),
            mean_text(v["perplexity"][OVERALL]),
            *difference_texts(v),
        ]
        for v in variants
    ]
    return [["", *(["best settings"] if chosen else []), *COLUMNS[1:]], *rows]


def by_domain_section(results: Mapping[str, Any], shown: Rows) -> Html | None:
    """Perplexity, bits per byte and differences of each domain; None if the only domain is called OVERALL."""
    causal = scored_causal(shown)
    domains = [domain for domain in causal[0]["perplexity"] if domain != OVERALL] if causal else []
    if not domains:
        return None
    tables, scores = [], {"Perplexity": ("perplexity", 2), "Bits per byte, all tokens": ("bits_per_byte", 3)}
    for title, (key, digits) in scores.items():
        rows = [[v["name"], *(mean_text(v[key][domain], digits) for domain in domains)] for v in causal]
        tables += [p.element("h3", title), p.table(["", *domains], rows)]
    if compared := [v for v in causal if "difference" in v]:
        header = ["", "domain", *COLUMNS[2:]]
        rows = [[v["name"], d, *difference_texts(v, d)] for v in compared for d in domains]
        tables += [p.element("h3", f"Difference from {results['baseline']}"), p.table(header, rows)]
    return p.join(*tables)


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
    machine = " ({processor}; trainings at once: {jobs}, threads of each: {threads})"
    trained_on = machine.format_map(results["machine"]) if "machine" in results else ""
    several = any(len(cells) > 1 for cells in curves.values())
    over_seeds = " over seeds; band: lowest to highest seed" if several else ""
    captions = {
        "tokens": f"Line: running mean{over_seeds}. The initial drop is cut off.",
        "flops": "The same over computation: forward and backward, attention and merging included.",
        "seconds": f"The same over time in training steps, without evaluation and checkpoints{trained_on}.",
    }
    drawn = (p.figure(figures.learning_curves(curves, axis), text) for axis, text in captions.items())
    return p.join(p.pair(*drawn), first_segment_note(shown))


def later_tokens_mark(causality: str) -> str:
    """The mark after the name of a variant whose losses cannot be compared, or nothing."""
    return SEES_LATER if causality == "none" else ""


def cells_with_equal_steps(cells: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Cells whose curves have the same steps: the longest of those that finished, or of all if none did."""
    drawn = [cell for cell in cells if cell["state"] == "finished"] or cells
    longest = max(cell["steps"] for cell in drawn)
    return [cell for cell in drawn if cell["steps"] == longest]


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
    counts = ("experts_in_use", "experts_per_decision", "experts_by_score")
    rows = [
        [
            v["name"],
            f"{v['experts']:.0f}",
            text_of(v, "utilisation", lambda share: f"{100 * share:.0f} %"),
            *(text_of(v, count, "{:.2f}".format) for count in counts),
        ]
        for v in routed
    ]
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
    rows = [[v["name"], mean_text(v.get("perplexity", {}).get(OVERALL))] for v in leaking]
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
            mean_text(v.get("training_loss"), 3),
            mean_text(v.get("perplexity", {}).get(OVERALL)),
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
            text_of(c, "steps", "{:,}".format),
            text_of(c, "tokens", large),
            *(text_of(c.get("parameters", {}), key, large) for key in ("active", "total")),
            text_of(c, "training_loss", "{:.3f}".format),
            text_of(c, "mean_perplexity", "{:.2f}".format),
            text_of(c, "seconds", duration),
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
        "held-out instances": ", ".join(f"{name} {n:,}" for name, n in text.get("instances", {}).items()),
        "held-out tokens": scored_tokens(text) if text else None,
        "machine": ", ".join(f"{key} {value}" for key, value in machine.items()),
        "date": results.get("date"),
    }
    return p.table(["setting", "value"], ([name, value] for name, value in rows.items() if value))
