"""The walk of bounds and the products' own cost: the texts and the picture of docs/speed.md about them."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from loriini.reporting.plots import picture
from pages import machine_text, markdown

Row = dict[str, Any]
LARGER = 8
"""Times the tokens of a step in the text below the bounds."""


@picture
def roofline(experiment: Row) -> Figure:
    """The bound of a step by group, stacked, for each number of experts and micro-batch."""
    rows = [row for row in experiment["rows"] if not row["recompute_merge"]]
    figure = Figure(figsize=(7.2, 0.9 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots()
    colors = (
        "#8391a1",
        "#5b6776",
        "#e5484d",
        "#9e1c22",
        "#f2a900",
        "#c9ced6",
        "#7a5af5",
        "#3b7dd8",
        "#2a9d6f",
    )
    left = [0.0] * len(rows)
    for color, group in zip(colors, rows[0]["milliseconds"], strict=True):
        sizes = [row["milliseconds"][group] for row in rows]
        axes.barh(range(len(rows)), sizes, left=left, color=color, label=group)
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    for place, row in enumerate(rows):
        axes.annotate(f" {row['ratio_at_mfu']:.2f}", (left[place], place), va="center")
    names = [f"{row['design']} E={row['experts']} N={row['segments']}" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.08 * max(left))
    axes.set_xlabel("ms of a step, at least; at the right: speed relative to a dense model at 40 % MFU")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=7)
    return figure


def peaks_text(experiment: Row, flops: float, bandwidth: float) -> str:
    """The rates of products and copies on an experiment's machine."""
    machine = experiment["machine"]
    where = machine_text(machine, machine["precision"], experiment["date"])
    return f"At {flops / 1e12:.2f} TFLOP/s and {bandwidth / 1e9:.0f} GB/s; {where}."


def bound_table(experiment: Row) -> str:
    """Milliseconds of a step by group, at the bound."""
    return markdown(*bound_cells(experiment["rows"]))


def bound_cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """The heading and the lines of that table."""
    groups = list(rows[0]["milliseconds"])
    lines = [
        [
            str(row["experts"]),
            str(row["segments"]),
            "recomputed" if row["recompute_merge"] else "kept",
            *(f"{row['milliseconds'][group]:.1f}" for group in groups),
            f"{row['total_ms']:.1f}",
            f"{row['ratio']:.3f}",
            f"{row['ratio_at_mfu']:.3f}",
        ]
        for row in rows
    ]
    return ["E", "N", "merged", *groups, "total", "ratio", "ratio at MFU"], lines


def bound_section(experiment: Row) -> str:
    """The table of a CPU with its heading."""
    assumed = experiment["assumed"]
    parts = bound_table(experiment), peaks_text(experiment, assumed["flops"], assumed["bandwidth"])
    return "\n\n".join(("### A CPU with its measured peaks, milliseconds", *parts))


def bound_text(experiment: Row) -> str:
    """The table, and what of Lory's additions is paid once a step: at most experts and segments of a row."""
    rows = [row for row in experiment["rows"] if not row["recompute_merge"]]
    lory = max(rows, key=lambda row: (row["segments"], row["experts"]))
    dense = next(row for row in rows if row["design"] == "dense" and row["segments"] == lory["segments"])
    added = {group: ms - dense["milliseconds"][group] for group, ms in lory["milliseconds"].items()}
    total, once = lory["total_ms"] - dense["total_ms"], added["optimizer"] + added["casts"]
    assumed, tokens = experiment["assumed"], lory["tokens_per_step"]
    at_mfu = 1e3 * dense["flops_per_step"] / (assumed["mfu"] * assumed["flops"])
    ratio = at_mfu / (at_mfu + total - once + once / LARGER)
    return (
        f"{bound_table(experiment)}\n\nOf the {total:.0f} ms that Lory adds at N = {lory['segments']} and "
        f"E = {lory['experts']}, {once:.0f} ms are paid once a step, however many tokens it has: optimizer "
        f"{added['optimizer']:.0f}, casts {added['casts']:.0f}. With {LARGER * tokens:,} tokens a step "
        f"instead of {tokens:,} the ratio at MFU would be {ratio:.2f}.\n\n"
        f"Computed on {experiment['date']} for {assumed['bandwidth'] / 1e12:.1f} TB/s and "
        f"{assumed['flops'] / 1e12:.0f} TFLOP/s, assumed for an H200, not measured."
    )


def group_text(experiment: Row) -> str:
    """Products of groups of rows whose numbers differ in every step, in three ways."""
    ways = list(experiment["cases"][0]["ms"])
    head = ("E", "width", *(f"{way}, ms" for way in ways), "rounded to grouped_mm", "of rounds")
    lines = [
        [
            str(case["experts"]),
            f"{case['width']:,}",
            *(f"{case['ms'][way]:.0f}" for way in ways),
            f"{case['ratio']:.2f}",
            f"{case['least']:.2f} to {case['greatest']:.2f}",
        ]
        for case in experiment["cases"]
    ]
    where = machine_text(experiment["machine"], experiment["machine"]["precision"], experiment["date"])
    return (
        "### Products with each expert's rows\n\n"
        "In designs that select experts, the number of rows (tokens) of an expert changes with every step. "
        "On a CPU, oneDNN computes the products in bfloat16. It compiles one for every new number of rows, "
        "which takes longer than the product itself.\n\n"
        "So the package rounds the numbers up, to one of eight between two powers of two. A rounded product "
        "runs on into the next expert's rows, and that expert's own product then overwrites what was written "
        "there.\n\n"
        f"The table has forward and backward of two matrices and {experiment['rows']:,} rows. Every way "
        "draws new numbers of rows in every round (`benchmarks/groups.py`).\n\n"
        f"{markdown(head, lines)}\n\nMeasured on {where}."
    )


def product_text(experiment: Row) -> str:
    """The products of a matrix by each segment's own weights, beside those by one weight."""
    head = ("product", "own weights", "one weight", "one weight, columns", "extra bytes at copy speed")
    names = ("own_ms", "one_ms", "columns_ms", "added_ms")
    lines = [[row["product"], *(f"{row[name]:.1f}" for name in names)] for row in experiment["rows"]]
    return (
        "### Products with a segment's own weights\n\n"
        f"The bound assumes that {experiment['segments']} segments with weights of their own take the time "
        "of one large product, and of the bytes of these weights. What they take beyond that is due to the "
        "library's batched product (`benchmarks/products.py`).\n\n"
        "In bfloat16 on a CPU with AMX, the batched product is fastest with the wide states of a segment as "
        "columns (`model/kernels/products.py`). With one weight, as in a dense FFN, the three products "
        "together are not faster that way. Milliseconds:\n\n"
        f"{markdown(head, lines)}\n\n"
        f"{peaks_text(experiment, experiment['matrix_flops'], experiment['copy_bandwidth'])}"
    )
