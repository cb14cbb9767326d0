"""The ladder in a comparison's report: loss over compute, and the differences at every size."""

from collections.abc import Mapping, Sequence
from typing import Any

from loriini.compare import figures
from loriini.compare.rows import LadderDesign
from loriini.compare.sections import difference_texts, mean_text
from loriini.evaluate.intervals import OVERALL
from loriini.reporting import page as p
from loriini.reporting.page import Html
from loriini.reporting.wording import NO_VALUE, large

HEADER = ("", "width", "active", "FLOPs", "loss", "difference", "over seeds", "over held-out text")


def ladder_section(results: Mapping[str, Any]) -> Html | None:
    """Every design at every size, and a line fitted to each design; None if nothing was scored."""
    measured = [design for design in results["ladder"]["designs"] if "flops" in design]
    if not measured:
        return None
    fitted = [design for design in measured if "line" in design]
    caption = "Means and intervals over seeds, and a line fitted to each design's points."
    return p.join(
        p.figure(figures.loss_over_compute(measured), caption),
        p.table(HEADER, sizes_rows(results, measured)),
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


def sizes_rows(results: Mapping[str, Any], designs: Sequence[LadderDesign]) -> list[list[str]]:
    """A row of HEADER for each design and size."""
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
