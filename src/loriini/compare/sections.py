"""Sections of a comparison's report: learning, experts, the grid, every cell, settings."""

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Any, Literal

from loriini.compare import figures
from loriini.compare.measures import by_variant
from loriini.compare.rows import DifferenceRow, Interval, VariantRow
from loriini.evaluate.intervals import OVERALL, Difference
from loriini.reporting import page as p
from loriini.reporting.page import Html
from loriini.reporting.wording import NO_VALUE, SEES_LATER, duration, interval, large, listing, minus, percent

AXIS_UNITS = {"tokens": "equal tokens", "flops": "equal FLOPs", "seconds": "equal seconds"}


def mean_text(interval: Interval, digits: int = 2) -> str:
    """A mean and its interval, which need not be symmetric: 12.34 (11.80 to 12.90)."""
    mean, low, high = interval["mean"], interval["low"], interval["high"]
    if mean is None:
        return NO_VALUE
    bounds = "" if low is None else f" ({low:.{digits}f} to {high:.{digits}f})"
    return minus(f"{mean:.{digits}f}{bounds}")


def difference_texts(difference: DifferenceRow) -> list[str]:
    """The change and both of its intervals."""
    seeds, documents = map(Difference.from_dict, (difference["seeds"], difference["documents"]))
    over_seeds = "one seed" if isnan(seeds.low) else interval(seeds)
    return [percent(difference["change"]), over_seeds, interval(documents)]


def learning_section(results: Mapping[str, Any], shown: Sequence[VariantRow]) -> Html | None:
    """Training loss over tokens, FLOPs and seconds, and at budgets that all spent."""
    trained = by_variant([cell for cell in results["cells"] if "curve" in cell])
    curves = {
        v["name"] + later_tokens_mark(v["training_causality"]): cells_with_equal_steps(trained[v["name"]])
        for v in shown
        if v["name"] in trained
    }
    if not curves:
        return None
    caption = "Line: running mean, over seeds; band: lowest to highest seed. The initial drop is cut off."
    machine = results.get("machine")
    captions = {
        "tokens": caption,
        "flops": "The same over computation: forward and backward, attention and merging included.",
        "seconds": "The same over time spent in training steps, without evaluation and checkpoints"
        + (
            f": {machine['processor']}, trainings at once {machine['jobs']}, threads of each "
            f"{machine['threads']}."
            if machine
            else "; runs do not record their machine."
        ),
    }
    drawn = (p.figure(figures.learning_curves(curves, axis), text) for axis, text in captions.items())
    return p.join(p.pair(*drawn), budgets_section(results, shown))


def later_tokens_mark(causality: str) -> str:
    """The mark after the name of a variant whose losses cannot be compared with the others'."""
    return SEES_LATER if causality == "none" else ""


def budgets_section(results: Mapping[str, Any], shown: Sequence[VariantRow]) -> Html:
    """Training loss at equal tokens, FLOPs and seconds, and differences paired by seed."""
    compared = [v for v in shown if "equal" in v]
    if not compared:
        return p.join()
    rows = []
    for v in compared:
        cells = []
        for axis in AXIS_UNITS:
            at_budget = v["equal"].get(axis)
            cells += [
                mean_text(at_budget["loss"], 3) if at_budget else NO_VALUE,
                signed(at_budget["difference"]) if at_budget and "difference" in at_budget else NO_VALUE,
            ]
        rows.append([v["name"], *cells])
    budget = {axis: at_budget for v in compared for axis, at_budget in v["equal"].items()}
    header = ["", *(text for unit in AXIS_UNITS.values() for text in (f"loss, {unit}", "difference"))]
    amounts = (
        large(budget["tokens"]["budget"]),
        large(budget["flops"]["budget"]) if "flops" in budget else NO_VALUE,
        duration(budget["seconds"]["budget"]),
    )
    return p.join(
        p.element("h3", "Training loss at equal budgets"),
        p.table(header, rows),
        p.note(
            f"Mean over the last tenth of {amounts[0]} tokens, {amounts[1]} FLOPs and {amounts[2]}, which "
            f"all spent; nats a token. Differences are from {results['baseline']}, paired by seed, with the "
            "95 % interval over seeds. Where a budget ends before a training did, its learning rate "
            "had not yet come down. Variants whose training sees later tokens are left out, as are "
            "those whose loss counts other tokens than the baseline's. ",
            first_segment_caveat(compared),
        ),
    )


def cells_with_equal_steps(cells: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Cells whose curves have the same steps: the longest of those that finished, or of all if none did."""
    finished = [cell for cell in cells if cell["state"] == "finished"]
    longest = max(cell["steps"] for cell in finished or cells)
    return [cell for cell in finished or cells if cell["steps"] == longest]


def first_segment_caveat(shown: Sequence[VariantRow], key: Literal["name", "design"] = "name") -> str:
    """A remark on variants whose training loss counts a self-routed first segment; empty without any."""
    self_routed = (v for v in shown if v["training_causality"] == "after_first_segment")
    names = [v[key] for v in self_routed if not v.get("loss_skips")]
    if not names:
        return ""
    return (
        f"The training losses of {listing(names)} may be too low compared with the others'; these results do "
        "not show by how much. In training the first segment of an instance is routed by itself, so its "
        "experts depend on tokens to be predicted, and the loss counts it."
    )


def signed(difference: Interval) -> str:
    """A difference with its sign and its interval."""
    text = mean_text(difference, 3)
    return text if text.startswith(("−", NO_VALUE)) else f"+{text}"


def expert_use_section(shown: Sequence[VariantRow]) -> Html | None:
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


def not_causal_section(shown: Sequence[VariantRow]) -> Html | None:
    """Perplexity of variants whose tokens see later ones, apart from the others."""
    leaking = [v for v in shown if v["causality"] == "none"]
    if not leaking:
        return None
    rows = [
        [
            v["name"],
            mean_text(v["perplexity"][OVERALL]) if "perplexity" in v else NO_VALUE,
            large(v["parameters"]["active"]) if "parameters" in v else NO_VALUE,
        ]
        for v in leaking
    ]
    return p.join(
        p.paragraph(
            p.strong("These perplexities are not comparable with the others': "),
            "a token's experts depend on its whole sequence, the tokens to be predicted included.",
        ),
        p.table(["", f"perplexity{SEES_LATER}", "active parameters"], rows),
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
    return p.join(p.table(["", "training loss", "perplexity", ""], rows), p.note(*choice(variants)))


def choice(variants: Sequence[VariantRow]) -> Iterator[str]:
    """How the best of a sweep was chosen, and whether the sweep was wide enough."""
    if all(v["chosen"] for v in variants):
        yield "Every point of the grid is a variant of its own in the other sections."
        return
    yield (
        "Among points that differ in the optimizer's settings alone, the one with the most finished seeds "
        "and, among those with equally many, the lowest training loss in the last tenth of its steps "
        "represents the design in the other sections. Held-out text was not used for the choice, but the "
        "noise of these trainings was: losses of the chosen points are a little too low. To compare designs, "
        "train their best points with other seeds."
    )
    for v in variants:
        if v.get("edge"):
            yield f" {v['name']} is at the edge of what was tried; a wider grid may hold a better value."


def cells_section(results: Mapping[str, Any]) -> Html:
    """Every training, with its folder."""
    rows = [
        [
            c["name"],
            str(c["seed"]),
            c.get("state", NO_VALUE) + (f": {c['error']}" if "error" in c else ""),
            f"{c['steps']:,}" if "steps" in c else NO_VALUE,
            large(c["tokens"]) if "tokens" in c else NO_VALUE,
            f"{c['training_loss']:.3f}" if c.get("training_loss") is not None else NO_VALUE,
            f"{c['mean_perplexity']:.2f}" if c.get("mean_perplexity") is not None else NO_VALUE,
            duration(c["seconds"]) if "seconds" in c else NO_VALUE,
            c["folder"],
        ]
        for c in results["cells"]
    ]
    header = ["", "seed", "state", "steps", "tokens", "training loss", "perplexity", "time", "folder"]
    return p.table(header, rows)


def settings_section(results: Mapping[str, Any]) -> Html:
    """The settings that made the comparison."""
    text, machine = results["heldout"], results.get("machine", {})
    skipped_in = "a document, by itself" if text.get("document_mask") else "an instance"
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
        "documents in which they begin": ", ".join(
            f"{name} {count:,}" for name, count in text.get("begin_in", {}).items()
        ),
        f"tokens skipped in {skipped_in}": str(text["skip"]) if text else None,
        "machine": ", ".join(f"{key} {value}" for key, value in machine.items()),
        "date": results.get("date"),
    }
    return p.table(["setting", "value"], ([name, value] for name, value in rows.items() if value))
