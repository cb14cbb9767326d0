"""The page of a lens: the text coloured by experts or by loss, and what it is compared with."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np

from loriini.analyze.reading import Lens, domain_overlaps, mean_overlap
from loriini.analyze.sections import DOMAINS_SHOWN
from loriini.reporting import page as p
from loriini.reporting import plots
from loriini.reporting.curves import Floats
from loriini.reporting.page import Html, write_page
from loriini.reporting.wording import signed
from loriini.routing import causality_warning

LISTED = 8
"""Rows of a table of tokens or segments."""
BEFORE = 48
"""Characters shown before a token in a table."""
LAYERS_AT_FIRST = 4
"""More layers than this are not all shown at first."""
GOLDEN_ANGLE = 137.508

ROUTED_BY = {
    "token": "Each token is routed by its own state.",
    "segment": "Each segment of {T} tokens is routed by the mean state of the segment before it, the first "
    "segment of a context by its own mean.",
    "prefix": "Every segment of {T} tokens is routed by the mean state of the first segment of its context.",
    "sequence": "The tokens of a context are routed together, by their mean state.",
}
LEAK = (
    " The first segment of a context is routed by its own text, which reveals a little of what is predicted: "
    "it is left out where there are later ones."
)
KEYS = (
    "Arrow keys move between tokens, Page Up and Page Down between {unit}s, Home and End to the first and "
    "the last; [ and ] change the layer. A click on an expert dims the tokens of the others."
)


def write_lens_page(lens: Lens, out: Path) -> Path:
    """Write the page of a lens; returns its path."""
    sections = {
        "Text": text_section(lens),
        "Loss": loss_section(lens),
        "Similar domains": domains_section(lens),
    }
    source = files("loriini.analyze")
    style = expert_colours(lens.reading.gates_LUE.shape[2]) + source.joinpath("lens.css").read_text("utf-8")
    script = source.joinpath("lens.js").read_text("utf-8")
    out.parent.mkdir(parents=True, exist_ok=True)
    return write_page(out, f"Loriini lens: {lens.name}", opening(lens), sections.items(), style, script)


def opening(lens: Lens) -> Html:
    """The model, how it routes, and its loss on the text."""
    layers, units, experts = lens.reading.gates_LUE.shape
    loss, of = float(lens.reading.losses_N[lens.counted_N].mean()), lens.which_counted
    numbers = {
        "tokens": f"{len(lens.reading.pieces):,}",
        f"nats a token{of}": f"{loss:.3f}",
        f"perplexity{of}": f"{math.exp(loss):.2f}",
    }
    if lens.dense_losses_N is not None:
        dense = float(lens.dense_losses_N[lens.counted_N].mean())
        numbers[f"nats a token, dense{of}"] = f"{dense:.3f}"
        numbers[f"gain over dense{of}"] = signed(dense - loss, 3)
    warning = causality_warning(lens.design)
    units_said = "" if lens.unit == "token" else f", {units:,} {lens.unit}{'s' if units > 1 else ''}"
    return p.join(
        p.element("p", "Loriini · lens", class_="kicker"),
        p.element("h1", f"How {lens.name} reads this text"),
        p.paragraph(f"{layers} layers of {experts} experts{units_said}. {_routed_by(lens)}"),
        p.paragraph(p.strong("Note: "), f"{warning}.") if warning else "",
        p.cards(numbers),
        p.note(_extent(lens)),
    )


def _routed_by(lens: Lens) -> str:
    design = lens.design
    if design.scorer == "label":
        words = f"Every token is routed by the label {lens.label}."
    elif design.constant_gates:
        words = "Every token gets every expert with the same weight."
    elif design.scorer == "linear_segment":
        segment = f"the segment of {design.segment_length} tokens before its own"
        words = f"Each token is routed by its own state and by the mean of {segment}."
    else:
        words = ROUTED_BY[design.unit].format(T=design.segment_length)
    if design.first_segment == "uniform" and design.unit == "segment":
        words = words.replace("by its own mean", "with equal weights")
    if design.scope == "global":
        words += " Layer 0 decides for all layers."
    if design.num_shared_experts:
        words += " Besides, every token passes through shared experts, which have no weight."
    return words


def _extent(lens: Lens) -> str:
    """What was read, in which contexts."""
    contexts = len(lens.reading.starts)
    cut = (
        f"The text was cut into {contexts} contexts of {lens.reading.starts[1]:,} tokens, as in evaluation; "
        "a context knows nothing of those before it. "
        if contexts > 1
        else ""
    )
    left_out = f"The {lens.left_out:,} tokens after these were left out (--tokens). " if lens.left_out else ""
    last = "A context's first token is not predicted, its last one not routed."
    return f"{cut}{left_out}{last} Layers, experts and tokens are counted from 0, segments from 1."


def text_section(lens: Lens) -> Html:
    """The controls, the key of the experts, the tokens and the details of one of them."""
    layers, _, experts = lens.reading.gates_LUE.shape
    first = "all" if layers <= LAYERS_AT_FIRST else "0"
    views = ["experts", "loss", *(["gain"] if lens.gains_N is not None else [])]
    controls = p.element(
        "form",
        _choices("view", "Colour", views, "experts"),
        _choices("layer", "Layer", ["all", *map(str, range(layers))], first),
        p.element("label", p.element("input", type="checkbox", id="numbers", checked="checked"), " numbers"),
        class_="controls",
        id="controls",
    )
    chip = partial(p.element, "button", type="button", class_="chip")
    key = (chip(str(i), style=f"--c:var(--e{i})", data_expert=str(i)) for i in range(experts))
    return p.join(
        p.element("noscript", p.note("Colours and weights need JavaScript, which is switched off.")),
        controls,
        p.element("div", *key, class_="key", id="key", role="group", aria_label="Experts"),
        p.element("p", id="scale", class_="note"),
        p.element(
            "div",
            p.element("div", *_contexts(lens), id="tokens", role="listbox", aria_label="Tokens of the text"),
            p.element("aside", id="details", aria_label="Details of a token"),
            class_="reader",
        ),
        p.note(KEYS.format(unit=lens.unit if lens.unit != "token" else "line")),
        p.data(lens.reading.to_dict(lens.dense_losses_N) | {"unitName": lens.unit}, "lens-data"),
    )


def _choices(name: str, legend: str, values: Sequence[str], chosen: str) -> Html:
    """Radio buttons."""

    def button(value: str) -> Html:
        checked = {"checked": ""} if value == chosen else {}
        return p.element("label", radio(value=value, **checked), value)

    radio = partial(p.element, "input", type="radio", name=name)
    return p.element("fieldset", p.element("legend", legend), *map(button, values), class_=name)


def _contexts(lens: Lens) -> Iterator[Html]:
    """The tokens in groups, of which a listbox has one level: units, or contexts if units are tokens."""
    starts = lens.reading.starts
    for number, (start, stop) in enumerate(pairwise([*starts, len(lens.reading.pieces)])):
        if lens.unit == "token":
            children, group = _tokens(lens, start, stop), {"role": "group", "aria_label": f"context {number}"}
        else:
            children, group = _units(lens, start, stop), {"role": "none"}
        yield p.element("div", *children, class_="context", **group)


def _units(lens: Lens, start: int, stop: int) -> Iterator[Html]:
    """The units of a context; the script labels those that are routed."""
    unit_N = lens.reading.unit_N
    for first, last in pairwise([start, *(start + 1 + np.flatnonzero(np.diff(unit_N[start:stop]))), stop]):
        unit = int(unit_N[first])
        named = {"data_unit": str(unit)} if unit >= 0 else {"aria_label": "not routed"}
        yield p.element("div", *_tokens(lens, first, last), class_="unit", role="group", **named)


def _tokens(lens: Lens, start: int, stop: int) -> Iterator[Html]:
    """Each token: a sign for each of its line breaks, then the breaks and the indentation after them."""
    for i in range(start, stop):
        *lines, tail = _shown(lens, i).split("\n")
        indentation = tail if lines and not tail.strip() else ""
        shown = "↵".join([*lines, tail.removesuffix(indentation)])
        yield p.element("span", shown, id=f"t{i}", class_="t", role="option", tabindex="-1")
        yield Html("<br>" * len(lines))
        if indentation:
            yield p.element("span", indentation, class_="indent", aria_hidden="true")


def _shown(lens: Lens, index: int) -> str:
    """The text of a token, or a sign for the end of the text and for a token that continues a character."""
    pieces = lens.reading.pieces
    return pieces[index] or ("⟨end⟩" if index == len(pieces) - 1 else "·")


def loss_section(lens: Lens) -> Html:
    """The tokens that were hardest to predict, and where the mixture and a dense model differ."""
    reading, gains_N, compared_N = lens.reading, lens.gains_N, lens.compared_gains_N
    hardest = _token_table(lens, reading.losses_N)
    if gains_N is None or compared_N is None:
        return p.join(
            p.element("h3", "Hardest tokens"),
            hardest,
            p.note("With --dense RUN, the run of a dense model, its loss is shown beside the mixture's."),
        )
    known = compared_N[~np.isnan(compared_N)]
    better = float((known > 0).mean())
    return p.join(
        p.paragraph(
            f"The gain is the loss of {lens.dense} minus that of {lens.name}, in nats: above 0 the mixture "
            "is better. It is ",
            p.strong(f"{signed(float(known.mean()), 3)} on average"),
            f", and above 0 for {100 * better:.0f} % of the tokens. One text says little of others.",
            LEAK if lens.design.causality == "after_first_segment" else "",
        ),
        _unit_table(lens, gains_N, compared_N),
        p.pair(
            p.join(p.element("h3", "Where the mixture gains most"), _token_table(lens, compared_N)),
            p.join(p.element("h3", "Where it loses most"), _token_table(lens, -compared_N)),
        ),
        p.folded("Hardest tokens", hardest),
    )


def _token_table(lens: Lens, key_N: Floats) -> Html:
    """The tokens with the largest keys (NaN is left out), each with its losses and the text before it."""
    reading, dense_N, gains_N = lens.reading, lens.dense_losses_N, lens.gains_N
    head = ["token", "loss", *(["dense", "gain"] if gains_N is not None else [])]
    rows = []
    for i in np.argsort(-key_N, kind="stable")[: min(LISTED, np.isfinite(key_N).sum())]:  # NaN last
        before = "".join(reading.pieces[max(0, i - BEFORE) : i])[-BEFORE:]
        token = p.element("a", _one_line(_shown(lens, i)), href=f"#t{i}", class_="found")
        more = [] if dense_N is None or gains_N is None else [f"{dense_N[i]:.2f}", signed(gains_N[i], 2)]
        place: str = p.join(p.element("span", _one_line(before), class_="before"), token)
        rows.append([place, f"{reading.losses_N[i]:.2f}", *more])
    return p.table(head, rows)


def _unit_table(lens: Lens, gains_N: Floats, compared_N: Floats) -> Html:
    """Mean losses of what each segment or context predicts; nothing where units are tokens."""
    if lens.unit == "token":
        return p.join()
    rows = []
    for number, tokens in enumerate(lens.reading.tokens_of_units, 1):
        predicted = tokens + 1  # a context's last token is in no unit
        loss, gain = lens.reading.losses_N[predicted].mean(), gains_N[predicted].mean()
        compares = np.isfinite(compared_N[predicted]).all()
        span = f"{lens.unit} {number}, predicts tokens {predicted[0]}–{predicted[-1]}"
        span += "" if compares else ", left out of the average"
        rows.append([span, f"{loss:.3f}", f"{loss + gain:.3f}", signed(float(gain), 3)])
    shown = p.table([lens.unit, "loss", "dense", "gain"], rows)
    return shown if len(rows) <= LISTED else p.folded(f"All {len(rows)} {lens.unit}s", shown)


def domains_section(lens: Lens) -> Html:
    """The domains whose routing is most like the text's, and a picture of both."""
    routes, shares_LE = lens.routes, lens.reading.choice_shares(lens.design.soft)
    if routes is None:
        return p.join(
            p.paragraph(
                "The routing of each domain has not been measured for this run. ",
                p.code("loriini analyze RUN --documents PATH…"),
                " measures it; then make this page again.",
            ),
            p.figure(plots.shares_by_domain(shares_LE[:, None], ["this text"]), _caption(lens, "the text")),
        )
    overlaps = domain_overlaps(lens.reading, lens.design.soft, routes)
    shown = routes.largest(DOMAINS_SHOWN)
    usual = ""
    if len(routes.domains) > 1:
        usual = f" Two domains of this run have an overlap of {mean_overlap(routes):.3f} on average."
    rows = [[name, f"{overlap:.3f}"] for name, overlap in list(overlaps.items())[:LISTED]]
    drawn = np.concatenate([shares_LE[:, None], shown.choice_shares], axis=1)
    return p.join(
        p.paragraph(
            f"The text is routed most like {routes.field} ",
            p.strong(next(iter(overlaps))),
            ". The overlap of two texts is the part of their choices of experts that is the same, averaged "
            "over layers: 1 if all is the same.",
            usual,
        ),
        p.table([routes.field, "overlap"], rows),
        p.figure(
            plots.shares_by_domain(drawn, ["this text", *shown.domains]),
            _caption(lens, f"the text and for each {routes.field}"),
        ),
    )


def _caption(lens: Lens, rows: str) -> str:
    what = "Mean weight" if lens.design.soft else "Share of choices"
    return f"{what} of each expert (columns) for {rows}: red is more than the even share, blue is less."


def expert_colours(experts: int) -> str:
    """A style sheet of a colour for each expert, for light and dark pages.

    Up to 12 hues are evenly spaced; more follow the golden angle, so that adjacent numbers differ, and two of
    three are lighter or darker. Black text, or white on dark pages, is legible on all colours.
    """
    light, dark = [], []
    for i in range(experts):
        hue = (25 + i * (360 / experts if experts <= 12 else GOLDEN_ANGLE)) % 360
        ring = i % 3 if experts > 12 else 0
        light.append(f"--e{i}: oklch({(0.8, 0.69, 0.89)[ring]} {(0.13, 0.15, 0.08)[ring]} {hue:.0f});")
        dark.append(f"--e{i}: oklch({(0.46, 0.56, 0.36)[ring]} {(0.12, 0.13, 0.09)[ring]} {hue:.0f});")
    return (
        f"\n:root {{ {' '.join(light)} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {' '.join(dark)} }} }}\n"
    )


def _one_line(text: str) -> str:
    return text.replace("\n", "↵")
