"""Sections of a comparison's report: the ladder, learning, experts, the grid, every cell, settings."""

from collections.abc import Mapping, Sequence
from math import isnan
from operator import itemgetter
from typing import Any

from loriini.common.grouping import grouped
from loriini.compare import figures
from loriini.compare.measures import Row, Rows
from loriini.evaluate.intervals import OVERALL, Difference
from loriini.reporting import page as p
from loriini.reporting.page import Html
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

LADDER = ("", "width", "active", "FLOPs", "loss", "difference", "over seeds", "over held-out text")
"""Columns of a ladder's table."""


def mean_text(interval: Row, digits: int = 2) -> str:
    """A mean and its interval, which need not be symmetric: 12.34 (11.80 to 12.90)."""
    mean, low, high = interval["mean"], interval["low"], interval["high"]
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
    trained_on = (
        f" ({machine['processor']}, {machine['jobs']} at once, {machine['threads']} threads each)"
        if machine
        else ""
    )
    captions = {
        "tokens": "Line: running mean over seeds; band: lowest to highest seed. The initial drop is cut off.",
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
    rows = [
        [
            v["name"],
            f"{v['experts']:.0f}",
            f"{100 * v['utilisation']:.0f} %" if "utilisation" in v else NO_VALUE,
            *(
                NO_VALUE if count is None else f"{count:.2f}"
                for count in (v["experts_in_use"], v["experts_per_decision"], v["experts_by_score"])
            ),
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
