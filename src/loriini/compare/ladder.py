"""The ladder in a comparison's report: loss over compute, fitted laws, and trends of the gains."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from loriini.compare import figures
from loriini.compare.rows import Interval, LadderDesign, TrendRow
from loriini.compare.sections import difference_texts, mean_text
from loriini.evaluate.intervals import OVERALL, excludes_zero
from loriini.reporting import page as p
from loriini.reporting.page import Html
from loriini.reporting.wording import NO_CLEAR_DIFFERENCE, NO_VALUE, amount, bounds, large, percent

Table = tuple[list[str], list[list[str]]]
"""A header and rows."""
BENT = (
    "its points, those of {} or their difference bend by more than seeds differ, so that nothing is read "
    "from a power law; see the measured differences of each size"
)
LOSS_CAPTION = "Means and intervals over seeds. Thick lines: fitted laws; thin ones join points that bend."
GAIN_CAPTION = "The ratio of the fitted laws at equal compute; bars: its interval at the largest size."
LAW = "Loss = a · FLOPs^(−b)"
LAW_NOTES = (
    "Laws are fitted to each seed by least squares of logarithms. A law with a floor c is fitted where there "
    "are four sizes or more and loss falls.",
    "The interval of b spans that over seeds and that of the regression. Those of the law with a floor are "
    "over seeds alone.",
    "Residual: root mean square of log loss.",
    "The sentences use the law without a floor. They extrapolate beyond the largest size by at most the log "
    "FLOPs of the whole ladder.",
    "Points bend where a parabola's interval, by the scatter of single seeds, excludes a straight line. What "
    "all seeds of a size share, such as a learning rate, can bend them too. Nothing is read from them.",
)


def ladder_section(results: Mapping[str, Any]) -> Html | None:
    """Every size, the laws, the pictures, and a sentence for each design."""
    measured = [design for design in results["ladder"]["designs"] if "flops" in design]
    if not measured:
        return None
    baseline = results["ladder"]["baseline"]
    compared = [design for design in measured if "trend" in design]
    drawn = [p.figure(figures.loss_over_compute(measured), LOSS_CAPTION)]
    if any_gain(measured):
        drawn.append(p.figure(figures.gain_over_compute(measured, baseline), GAIN_CAPTION))
    return p.join(
        p.items([answer(design, baseline) for design in compared]) if compared else "",
        p.pair(*drawn) if len(drawn) > 1 else drawn[0],
        p.element("h3", "Every size"),
        p.table(*sizes_table(results, measured)),
        p.note(sizes_note(baseline)),
        p.element("h3", LAW),
        p.table(*laws_table(measured)),
        p.note(" ".join((*LAW_NOTES, "Settings are the same at every size unless a sweep chose them."))),
    )


def any_gain(designs: Sequence[LadderDesign]) -> bool:
    """Whether there is a gain over compute to draw: one whose points do not bend."""
    return any("trend" in design and not design["trend"]["bends"] for design in designs)


def sizes_note(baseline: str) -> str:
    """What the table of sizes shows."""
    return (
        "Loss is the mean over domains of the held-out loss, nats a token. Differences are of the mean over "
        f"domains of the perplexity, in which hard domains weigh more, from {baseline} of the same size, "
        "trained on as many tokens. FLOPs are of the whole training."
    )


def answer(design: LadderDesign, baseline: str) -> str:
    """A sentence on a design's gain: its size, its trend, and where it would vanish or double.

    Where the points bend, that they do.
    """
    trend = design["trend"]
    if trend["bends"]:
        return f"{design['name']}: {BENT.format(baseline)}."
    last, slope = trend["at_largest"], trend["per_tenfold"]
    ahead = last["mean"] < 0
    side = "below" if ahead else "above"
    gain = "gain" if ahead else "deficit"
    now = (
        f"{design['name']}: at the compute of the largest size of both its fitted loss is "
        f"{amount(last['mean'])} {side} that of {baseline} ({span(last)})"
    )
    if not excludes_zero(last["low"], last["high"]):
        now += f", which is {NO_CLEAR_DIFFERENCE}"
    change = f"{percent(slope['mean'], 2)} ({span(slope, 2)})"
    towards = f"With ten times the compute the difference changes by {change}"
    if slope["low"] is None:
        return f"{now}. {towards}; one seed and two sizes give no interval."
    if not excludes_zero(slope["low"], slope["high"]):
        return f"{now}. {towards}: the interval does not say whether it grows or shrinks, nor where it ends."
    if not excludes_zero(last["low"], last["high"]):
        favoured = baseline if slope["mean"] > 0 else design["name"]
        return f"{now}. {towards}, in favour of {favoured}."
    if (slope["mean"] > 0) == ahead:
        return f"{now}. {towards}: the {gain} shrinks and {crossing(trend, 'vanishes')}."
    return f"{now}. {towards}: the {gain} grows and {crossing(trend, 'doubles')}."


def crossing(trend: TrendRow, verb: Literal["vanishes", "doubles"]) -> str:
    """Where a gain vanishes or doubles by the fit, with its interval."""
    zero, reach = trend[verb], f"{trend['reach']:.2g}"
    if zero is None or not zero["possible"]:
        return f"{verb} nowhere up to {reach} FLOPs, the limit of extrapolation"
    low = "the smallest measured" if zero["low"] is None else f"{zero['low']:.2g}"
    high = f"beyond {reach}" if zero["high"] is None else f"{zero['high']:.2g}"
    if zero["flops"] is None:
        return f"{verb} beyond {reach} FLOPs, the limit of extrapolation; by the interval, from {low} on"
    return f"{verb} at {zero['flops']:.2g} FLOPs ({low} to {high})"


def span(interval: Interval, digits: int = 1) -> str:
    """An interval of a relative change, or that there is none."""
    if interval["low"] is None or interval["high"] is None:
        return "no interval"
    return bounds(interval["low"], interval["high"], digits)


def sizes_table(results: Mapping[str, Any], designs: Sequence[LadderDesign]) -> Table:
    """A row for each design and size."""
    variants = {v["name"]: v for v in results["variants"]}
    rows = []
    for design in designs:
        by_width = {variants[name]["width"]: variants[name] for name in design["variants"]}
        for width, flops, loss in zip(design["widths"], design["flops"], design["loss"], strict=True):
            v = by_width[width]
            difference = difference_texts(v["difference"][OVERALL]) if "difference" in v else [NO_VALUE] * 3
            size = [str(width), large(v["parameters"]["active"]), f"{flops:.3g}", mean_text(loss, 3)]
            rows.append([v["name"], *size, *difference])
    return ["", "width", "active", "FLOPs", "loss", "difference", "over seeds", "over held-out text"], rows


def laws_table(designs: Sequence[LadderDesign]) -> Table:
    """A row for each design: both laws, and whether its points bend."""
    rows = []
    for design in designs:
        row = [design["name"]]
        for law, has_floor in ((design.get("law"), False), (design.get("law_with_floor"), True)):
            row += [f"{law['a']:.3g}" if law else NO_VALUE, mean_text(law["b"], 4) if law else NO_VALUE]
            row += [mean_text(law["c"], 3) if law else NO_VALUE] if has_floor else []
            row += [f"{law['residual']:.4f}" if law else NO_VALUE]
        rows.append([*row, "yes" if design["bends"] else "not clearly"])
    return ["", "a", "b", "residual", "a with floor", "b", "floor c", "residual", "points bend"], rows
