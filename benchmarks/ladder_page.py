"""docs/ladder.md, made of the results of `ladder.py` alone; its sentences are from intervals."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from loriini.compare import figures
from loriini.compare.ladder import (
    GAIN_CAPTION,
    LAW,
    LAW_NOTES,
    LOSS_CAPTION,
    answer,
    any_gain,
    laws_table,
    sizes_note,
    sizes_table,
)
from loriini.reporting.wording import listing
from pages import (
    between,
    choosing_seeds,
    command_line,
    long_documents,
    losses_text,
    make_it,
    markdown,
    rates_section,
    seeds_text,
    setup_table,
    tried_rates_text,
    uncertain_choice,
    whole_page,
)

Results = Mapping[str, Any]

HEAD = """# Ladder of sizes

At which size would a gain vanish or grow? Designs at several widths, each twice the one before, on the \
same text. [`loriini compare --ladder`](compare.md#a-ladder-of-sizes) does the same for any designs, text \
and sizes.

Made by `benchmarks/figures.py` from `benchmarks/results/ladder.json`; nothing here is written by hand.
"""
COMMAND = "python benchmarks/ladder.py --text PATH… --out WORK --results benchmarks/results/ladder.json"
OPTIONS = "`--width`, `--sizes`, `--designs`, `--rates` and `--steps` ask other questions."
PICTURES = {
    "ladder_loss": f"Held-out loss over training FLOPs. {LOSS_CAPTION}",
    "ladder_gain": GAIN_CAPTION,
}


def ladder_page(path: Path) -> str:
    """The page; without results, how to make them."""
    return whole_page(path, HEAD, body, make_it(COMMAND, OPTIONS))


def body(results: Results) -> Iterable[str]:
    """The page's text below its head."""
    baseline, designs = results["ladder"]["baseline"], measured(results)
    return (
        "## Set-up\n",
        made_with(results),
        "## What the sizes say\n",
        *(f"- {answer(design, baseline)}" for design in designs if "trend" in design),
        "",
        *too_short(designs),
        *(f"![{PICTURES[name]}](pictures/{name}.svg)\n\n{PICTURES[name]}\n" for name in shown(designs)),
        "## Every size\n",
        markdown(*sizes_table(results, designs)),
        "",
        sizes_note(baseline) + "\n",
        long_documents(results["heldout"]) + "\n",
        f"## {LAW}\n",
        markdown(*laws_table(designs)),
        "",
        *(f"- {note}" for note in LAW_NOTES),
        "",
        "## Learning rates\n",
        rates_text(results),
        f"{losses_text(results)}, of {baseline}:\n",
        *rates_section("width", by_width(results)),
        *(f"- {remark}\n" for remark in results["remarks"]),
        make_it(command(results), OPTIONS),
    )


def ladder_pictures(path: Path) -> dict[str, str]:
    """The pictures of the page, by name."""
    if not path.exists():
        return {}
    results = json.loads(path.read_text(encoding="utf-8"))
    designs = measured(results)
    drawn = {
        "ladder_loss": lambda: figures.loss_over_compute(designs),
        "ladder_gain": lambda: figures.gain_over_compute(designs, results["ladder"]["baseline"]),
    }
    return {name: drawn[name]() for name in shown(designs)}


def shown(designs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the pictures that there is something to draw in."""
    return [name for name in PICTURES if name != "ladder_gain" or any_gain(designs)]


def measured(results: Results) -> list[Mapping[str, Any]]:
    """The designs that were scored."""
    return [design for design in results["ladder"]["designs"] if "flops" in design]


def too_short(designs: Sequence[Mapping[str, Any]]) -> list[str]:
    """A paragraph where the intervals of neighbouring widths overlap; none where none do."""
    unclear = [
        f"{design['name']} from width {narrow} to {wide}"
        for design in designs
        for (narrow, before), (wide, after) in pairwise(zip(design["widths"], design["loss"], strict=True))
        if None in (after["high"], before["low"]) or after["high"] >= before["low"]
    ]
    said = (
        f"Intervals overlap, which is no test of a difference: {listing(unclear)}. Trainings this short, or "
        "their learning rates, may not suit the wider models.\n"
    )
    return [said] if unclear else []


def made_with(results: Results) -> str:
    """Sizes, seeds, text and machine."""
    widths = listing([str(width) for width in results["ladder"]["widths"]])
    active = between([v["parameters"]["active"] for v in results["variants"]])
    layers = results["run"]["model"]["num_hidden_layers"]
    return setup_table(results, f"widths {widths}, {layers} layers, {active} active parameters")


def rates_text(results: Results) -> str:
    """How learning rates were chosen, and for whom."""
    baseline = results["ladder"]["baseline"]
    said = (
        f"At each width {baseline} was trained with {choosing_seeds(results)} and "
        f"{tried_rates_text(results)}",
        "All designs of this width were trained with the rate of its lowest training loss and "
        f"{seeds_text(results)}.",
        "The other designs might gain by rates of their own.",
        uncertain_choice(by_width(results), "widths"),
    )
    return "\n".join(f"- {each}" for each in said) + "\n"


def by_width(results: Results) -> dict[str, Mapping[str, Any]]:
    """What was tried at each width, the smallest first."""
    return dict(sorted(results["tried"].items(), key=lambda item: int(item[0])))


def command(results: Results) -> str:
    """The command that made the results, but for the folders."""
    found = results["ladder"]
    designs = dict.fromkeys(v["design"] for v in results["variants"])
    more = {
        "width": found["widths"][-1],
        "sizes": len(found["widths"]),
        "designs": " ".join(name for name in designs if name != found["baseline"]),
    }
    return command_line(COMMAND, results, more)
