"""Figures of speed: the tables of docs/speed.md and its pictures, from `loriini bench` and `roofline.py`.

python benchmarks/figures.py    # calls this, where benchmarks/results/bench.json is
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from matplotlib.figure import Figure

from bound_figures import bound_section, bound_text, group_text, product_text, roofline
from loriini.estimate.memory import GIB
from loriini.reporting.plots import DENSE_COLOR, GREY, LESS, MIXTURE_COLOR, picture
from loriini.reporting.wording import listing
from pages import Part, machine_text, markdown

Row = dict[str, Any]


def trained(rows: Iterable[Row], **fixed: Any) -> list[Row]:
    """Lory's training steps, those with `fixed` values."""
    lory = [row for row in rows if row["what"] == "train_step" and row["design"] == "lory"]
    return [row for row in lory if all(row[name] == value for name, value in fixed.items())]


def extremes(row: Row) -> tuple[float, float]:
    """The least and the greatest ratio of a round; the ratio of a row without rounds."""
    pairs = zip(row.get("seconds", ()), row.get("baseline_seconds", ()), strict=True)
    found = [row["ratio"], *(theirs / own for own, theirs in pairs)]
    return min(found), max(found)


def range_text(row: Row) -> str:
    """The same as text."""
    return "{:.3f} to {:.3f}".format(*extremes(row))


@picture
def ratios(rows: list[Row]) -> Figure:
    """Lory's speed relative to dense against E, T and N, beside the bound and the published figures."""
    rows = trained(rows, recompute_merge=False)
    first = rows[0]
    fixed = {name: first[name] for name in ("experts", "segment_length", "segments", "micro_batch_size")}
    sweeps = {
        "experts": {"segment_length": fixed["segment_length"], "segments": fixed["segments"]},
        "segment_length": {
            "experts": fixed["experts"],
            "micro_batch_size": fixed["micro_batch_size"],
        },
        "segments": {"experts": fixed["experts"], "segment_length": fixed["segment_length"]},
    }
    labels = {"experts": "experts E", "segment_length": "tokens of a segment T", "segments": "segments N"}
    panels = {
        name: sorted(trained(rows, **values), key=lambda row: row[name]) for name, values in sweeps.items()
    }
    panels = {name: points for name, points in panels.items() if len(points) > 1}
    figure = Figure(figsize=(3.2 * max(2, len(panels)), 3.2), layout="constrained")
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (name, points) in zip(all_axes, panels.items(), strict=True):
        x = [row[name] for row in points]
        medians, ranges = [row["ratio"] for row in points], [extremes(row) for row in points]
        bars = [[y - low for y, (low, _) in zip(medians, ranges, strict=True)]]
        bars += [[high - y for y, (_, high) in zip(medians, ranges, strict=True)]]
        axes.errorbar(x, medians, bars, fmt="o-", color=MIXTURE_COLOR, capsize=3, label="measured")
        axes.plot(x, [row["bound"] for row in points], "--", color=GREY, label="bound of memory traffic")
        if name == "experts":
            axes.plot(x, [row["published"] for row in points], "s:", color=LESS, label="published")
        axes.set_xscale("log", base=2)
        axes.set_xticks(x, map(str, x))
        axes.minorticks_off()
        axes.set_xlabel(labels[name])
        axes.axhline(1, color=DENSE_COLOR, lw=1)
    figure.axes[0].set_ylabel("speed relative to dense")
    figure.axes[0].legend(fontsize=7)
    return figure


@picture
def memory(rows: list[Row]) -> Figure:
    """Bytes of a training step by part: dense, and Lory with merged weights kept or recomputed."""
    measured = [row for row in rows if row["what"] == "memory"]
    segments = measured[0]["segments"]
    measured = [row for row in measured if row["segments"] == segments]
    bars = {"dense": measured[0]["baseline_bytes"]}
    bars |= {f"{row['design']} {row['experts']}": row["bytes"] for row in measured}
    figure = Figure(figsize=(6.4, 0.8 + 0.34 * len(bars)), layout="constrained")
    axes = figure.subplots()
    left = [0.0] * len(bars)
    parts = {
        "weights": DENSE_COLOR,
        "gradients": GREY,
        "optimizer": LESS,
        "merged": MIXTURE_COLOR,
        "other": "#f2a900",
    }
    for part, color in parts.items():
        other = part == "other"
        sizes = [(b["activations"] - b["merged"] if other else b[part]) / GIB for b in bars.values()]
        axes.barh(range(len(bars)), sizes, left=left, color=color, label="activations" if other else part)
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    axes.set_yticks(range(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.set_xlabel("GiB")
    axes.legend(fontsize=7)
    return figure


def step_text(rows: list[Row]) -> str:
    """The table of training steps, where they were measured, and what MFU is a share of."""
    peaks = listing(list(dict.fromkeys(f"{peak(row, rows) / 1e12:.2f}" for row in trained(rows))))
    said = f"MFU is relative to {peaks} TFLOP/s, the fastest matrix product measured there."
    where = measured_on(trained(rows), lambda row: f"Merged weights {merged_weights(row)}")
    apart = " Rows of different dates each have a dense model of the same date as their baseline."
    dates = {row["machine"]["date"] for row in trained(rows)}
    return f"{step_table(rows)}\n\n{where}{apart * (len(dates) > 1)} {said}"


def merged_weights(row: Row) -> str:
    """What a step does with merged weights for its backward pass."""
    return "recomputed" if row["recompute_merge"] else "kept"


def peak(row: Row, rows: Iterable[Row]) -> float:
    """The greatest matrix peak measured on a row's machine: shared machines do not always reach it."""
    about = row["machine"]
    same = ("processor", "cores", "precision", "torch")
    alike = (r for r in rows if all(r["machine"].get(key) == about.get(key) for key in same))
    return max(map(own_peak, alike))


def own_peak(row: Row) -> float:
    """The matrix peak measured with a row's part, of which its MFU is a share."""
    return float(row["machine"]["matrix_flops"])


def timed(row: Row) -> str:
    """What a row is of, as code."""
    return f"`{row['what']}`"


def measured_on(rows: Iterable[Row], name: Callable[[Row], str] = timed) -> str:
    """The machines, precisions and dates of rows; each part is measured in one go, on one machine.

    Where there are several, `name` says which rows are whose.
    """
    parts: dict[str, list[str]] = {}
    for row in rows:
        about = row["machine"]
        parts.setdefault(machine_text(about, row["dtype"], about["date"]), []).append(name(row))
    if len(parts) == 1:
        return f"Measured on {next(iter(parts))}."
    return " ".join(f"{listing(list(dict.fromkeys(kinds)))}: {where}." for where, kinds in parts.items())


def step_table(rows: list[Row]) -> str:
    """Training steps: measured ratio, bound and published ratio."""
    head = (
        "design",
        "E",
        "T",
        "N",
        "merged weights",
        "ratio",
        "of rounds",
        "bound",
        "published",
        "MFU",
        "dense MFU",
        "tokens/s",
    )
    return markdown(
        head,
        [
            [
                row["design"],
                *(str(row[name]) for name in ("experts", "segment_length", "segments")),
                merged_weights(row),
                f"{row['ratio']:.3f}",
                range_text(row),
                f"{row['bound']:.3f}",
                f"{row['published']:.3f}" if row["published"] else "",
                *(f"{row[of] * own_peak(row) / peak(row, rows):.2f}" for of in ("mfu", "baseline_mfu")),
                f"{row['tokens_per_second']:,.0f}",
            ]
            for row in trained(rows)
        ],
    )


OTHERS: Sequence[tuple[Callable[[Row], bool], str]] = (
    (
        lambda row: row["what"] == "train_step",
        "- **`train_step`** is a training step of a sparse design, with one micro-batch. Beside "
        "transformers' Mixtral (`grouped_mm`) both models hold their weights in the precision below and read "
        "the same batches. AoE's baseline is the top-2 mixture of equal parameters.",
    ),
    (
        lambda row: row["what"] == "ffn",
        "- **`ffn`** is forward and backward of one layer's mixture for a step's micro-batches: routing, "
        "merging, and a cast of its weights once a step. Its baseline is the dense FFN.",
    ),
    (
        lambda row: row["what"] == "decode",
        "- **`decode`** is greedy generation of 128 tokens after a prompt that is in the cache, with the "
        "prompt's merged FFNs. After 16 tokens these may be laid out anew, which is part of the time. Rows "
        "with `prefill` are of prompts alone, one after the other, each into a cache of its own.",
    ),
)
"""What is said of rows of a kind, where there are any."""
DECODING = """**What bounds decoding.** For each new token of a batch of B, each layer reads these weights, \
where an FFN has P parameters:

| model | reads |
| --- | --- |
| dense | one FFN for the whole batch: P |
| lory | B merged FFNs, or all E experts, whose products with every token it then sums: at least min(B, E)·P |

- With B = 8 and E = 8 Lory reads 8 FFNs instead of one.
- The sums also multiply E times as much. Once B is large, this takes longer than reading.
- `bound` adds the cheaper of these two ways (merged FFNs, or all experts) to the Llama's measured time, at \
the measured copy bandwidth and matrix peak. Weights that are only read may come faster than they are copied.
- A prompt reads E FFNs, and writes and reads the one that it merges. The dense model reads one.
- Keys and values of this package grow in place, which `bound` does not count; the Llama's are copied at \
every token. A ratio may be above its bound for this reason too."""
"""What is said of decoding, where its bound is known."""


def other_text(rows: list[Row]) -> str:
    """Everything else that was timed, and what it is; nothing where nothing was."""
    others = beside_steps(rows)
    said = [text for is_kind, text in OTHERS if any(map(is_kind, others))]
    if not others:
        return ""
    bounded = any(row["what"] == "decode" and "bound" in row for row in others)
    parts = ("\n".join(said), *[DECODING] * bounded, other_table(others), measured_on(others))
    return "\n\n".join(("### Sparse designs, FFNs and decoding", *parts))


def machines_text(rows: list[Row]) -> str:
    """Rows of other machines than the tables above, a table for each machine, precision and date."""
    of_machine: dict[str, list[Row]] = {}
    for row in beside_steps(rows):
        of_machine.setdefault(measured_on([row]), []).append(row)
    tables = (text for where, of in of_machine.items() for text in (other_table(of), where))
    return "\n\n".join(("### Other machines", step_text(rows), *tables))


def beside_steps(rows: list[Row]) -> list[Row]:
    """What was timed beside Lory's training steps."""
    steps = trained(rows)
    return [row for row in rows if row["what"] != "memory" and row not in steps]


def other_table(others: Iterable[Row]) -> str:
    """These rows, beside their baselines."""
    texts = [
        [
            *(str(row[name]) for name in ("what", "design", "experts", "baseline")),
            f"{row['ratio']:.3f}",
            range_text(row),
            f"{row['bound']:.3f}" if "bound" in row else "",
        ]
        for row in others
    ]
    return markdown(("what", "design", "E", "baseline", "ratio", "of rounds", "bound"), texts)


def memory_table(rows: list[Row]) -> str:
    """GiB by part."""
    measured = [row for row in rows if row["what"] == "memory"]
    head = ("design", "E", "N", "weights", "gradients", "optimizer", "activations", "merged", "over dense")
    parts = ("weights", "gradients", "optimizer", "activations", "merged")
    dense = measured[0]
    lines = [["dense", "1", str(dense["segments"]), *_gib(dense["baseline_bytes"], parts), "1.00"]]
    for row in measured:
        ratio = f"{row['ratio']:.2f}"
        numbers = (str(row["experts"]), str(row["segments"]))
        lines.append([row["design"], *numbers, *_gib(row["bytes"], parts), ratio])
    return f"{markdown(head, lines)}\n\n{measured_on(measured)}"


def _gib(sizes: dict[str, int], parts: Sequence[str]) -> list[str]:
    return [f"{sizes[part] / GIB:.2f}" for part in parts]


PARTS = {
    "steps": Part(
        "bench", step_text, "speed_ratios", "Speed relative to dense by the number of experts", ratios
    ),
    "others": Part("bench", other_text),
    "machines": Part("bench_others", machines_text),
    "memory": Part("bench", memory_table, "speed_memory", "Memory of a step by part", memory),
    "bounds": Part("roofline", bound_text, "speed_roofline", "The bound of a step by group", roofline),
    "products": Part("products", product_text),
    "groups": Part("groups", group_text),
    "bounds-cpu": Part("roofline_cpu", bound_section),
}
"""By the name of their place in the page."""
