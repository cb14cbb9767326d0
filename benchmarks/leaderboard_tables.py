"""The tables of docs/leaderboard.md."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loriini.compare.sections import difference_texts, mean_text, signed
from loriini.evaluate.intervals import OVERALL
from loriini.reporting.wording import large, listing
from pages import INTERVALS, markdown
from ranking import is_counted, is_told_labels, of_equal_size, of_other_size

Row = Mapping[str, Any]


def ranked(variants: Iterable[Row], value: Any) -> list[Row]:
    """Variants that have a value, the lowest first."""
    return sorted((v for v in variants if value(v) is not None), key=value)


def by_perplexity(variants: Sequence[Row]) -> list[Row]:
    return ranked(variants, lambda v: v["perplexity"][OVERALL]["mean"] if "perplexity" in v else None)


def perplexity_table(results: Row, among: Sequence[Row]) -> str:
    """Designs by held-out perplexity, with differences from the first and from the leader."""
    base, leader = baseline(results), results["leader"]["design"]
    of_leader = results["leader"]["differences"]
    leaders = [] if leader == base or is_told_labels(leader) else [leader]
    rows = [
        [
            v["design"],
            mean_text(v["perplexity"][OVERALL]),
            *cells_of(v.get("difference", {}).get(OVERALL)),
            *(cell for _ in leaders for cell in cells_of(of_leader.get(v["design"]))),
            large(v["parameters"]["active"]),
            large(v["parameters"]["total"]),
        ]
        for v in by_perplexity(among)
    ]
    head = ["design", "perplexity"]
    for name in (base, *leaders):
        head += [f"relative to {name}", *INTERVALS]
    return markdown([*head, "active", "parameters"], rows)


def cells_of(difference: Row | None) -> Sequence[str]:
    """A difference and its two intervals, or as many empty cells."""
    return difference_texts(difference) if difference else ("", "", "")


def baseline(results: Row) -> str:
    """The first design, which the others are compared with."""
    return str(results["variants"][0]["design"])


def domain_table(results: Row) -> str:
    """Perplexity by domain."""
    variants = by_perplexity(of_equal_size(results["variants"])) + by_perplexity(
        of_other_size(results["variants"])
    )
    domains = [name for name in variants[0]["perplexity"] if name != OVERALL]
    rows = [[v["design"], *(f"{v['perplexity'][d]['mean']:.1f}" for d in domains)] for v in variants]
    return markdown(["design", *domains], rows)


def warmed(results: Row) -> list[str]:
    """The designs that admit a dense warm-up: without it, after a single dense step, and with all of it."""
    rows = [row for v in by_perplexity(results["variants"]) for row in rows_by_dense_steps(results, v)]
    if not rows:
        return []
    steps = next(iter(results["warmed"].values()))["dense_steps"]
    relative = ("relative to none", *INTERVALS, f"relative to {baseline(results)}", *INTERVALS)
    return [
        "## What a dense warm-up changes\n",
        f"Perplexity of designs that admit a dense warm-up: without it, with one of {steps} of "
        f"{results['run']['steps']} steps, and with a single dense step. These trainings are short; in "
        "longer ones a warm-up may change less.\n",
        "- **A single dense step.** A warm-up also changes the initial weights, since it copies one FFN into "
        "all experts. Experts of independent weights have a smaller merge: with even gates, the matrices of "
        "E experts begin √E times smaller. A single dense step makes these copies, and no more. Where both "
        "rows of a design are far from the model without a warm-up, the copies make most of the difference. "
        "The two rows are not compared with each other.",
        "- **Learning rates** are chosen without a warm-up and with it, each by trainings of its own "
        "([below](#learning-rates)); that with it is the one of the single step too.\n",
        markdown(["design", "dense steps", "rate", "perplexity", *relative], rows),
        "",
    ]


def rows_by_dense_steps(results: Row, variant: Row) -> list[Sequence[str]]:
    """A design's rows of `warmed`; none where it admits no dense warm-up."""
    design = variant["design"]
    cold = {
        "dense_steps": 0,
        "rate": results["tried"][design]["rate"],
        "perplexity": variant["perplexity"][OVERALL],
        "to_first": variant.get("difference", {}).get(OVERALL),
    }
    warm = [
        found for name in ("copied", "warmed") if "perplexity" in (found := results[name].get(design, {}))
    ]
    return [
        [design, str(each["dense_steps"]), each["rate"], mean_text(each["perplexity"])]
        + [cell for name in ("difference", "to_first") for cell in cells_of(each.get(name))]
        for each in ([cold, *warm] if warm else [])
    ]


def copies(results: Row) -> list[str]:
    """What copies gain with routing and without, relative to dense at the same learning rate."""
    if not results:
        return []
    dense, *mixtures = results["runs"]
    rows = [
        [rate, mean_text(models[dense]["perplexity"][OVERALL])]
        + [cell for mixture in mixtures for cell in cells_of(models[mixture]["difference"][OVERALL])]
        for rate, models in results["rates"].items()
    ]
    columns = [column for mixture in mixtures for column in (f"{mixture}, relative to {dense}", *INTERVALS)]
    return [
        "### Copies without routing\n",
        "With gates fixed at 1/E, a mixture is a dense model of E copies. Only gradient clipping treats it "
        "differently: the gradients of copies have a norm √E times smaller, so it is clipped less. Both "
        "mixtures begin with a single dense step, and each row has one learning rate "
        f"({seeds_of(results)}, `benchmarks/copies.py`).\n",
        markdown(["rate", dense, *columns], rows),
        "",
    ]


def seeds_of(results: Row) -> str:
    """How many seeds, and when: trainings of their own, with the same settings."""
    machine = results["machine"]
    return f"{results['seeds']} seeds, {machine['processor']}, {machine['precision']}, {results['date']}"


def narrowed(results: Row) -> list[str]:
    """Soft mixtures that keep fewer experts of a unit."""
    rows = [
        [design, str(v["experts"]), mean_text(v["perplexity"]), *cells_of(v.get("difference"))]
        for design, variants in results.get("narrowed", {}).items()
        for v in variants
    ]
    if not rows:
        return []
    return [
        "## From soft to top-k\n",
        "Soft mixtures that merge only the likeliest experts of each segment, as "
        "[`export --top-k`](export.md#from-soft-to-sparse-and-its-memory) makes them, without further "
        "training. Designs that were trained with top-k are above.\n",
        markdown(["design", "experts", "perplexity", "relative to all", *INTERVALS], rows),
        "",
    ]


def budget_table(results: Row) -> str:
    """Training loss at the budgets that all spent."""
    compared = [v for v in results["variants"] if "equal" in v]
    counted = ranked(list(filter(is_counted, compared)), lambda v: v["equal"]["flops"]["loss"]["mean"])
    left_open = [v for v in compared if not is_counted(v)]
    rows = []
    for v in (*counted, *ranked(left_open, lambda v: v["equal"]["tokens"]["loss"]["mean"])):
        row = [v["design"]]
        for axis in ("tokens", "flops"):
            if axis == "flops" and not is_counted(v):
                row += ["", ""]
                continue
            equal = v["equal"][axis]
            row += [mean_text(equal["loss"], 3), signed(equal["difference"]) if "difference" in equal else ""]
        rows.append(row)
    minus = f"minus {baseline(results)}"
    return markdown(["design", "equal tokens", minus, "equal FLOPs", minus], rows)


def budget_note(results: Row) -> str:
    """What the budgets are, and who cannot be compared by training loss."""
    equal = next(v["equal"] for v in results["variants"] if "flops" in v.get("equal", ()))
    left_out = [v["design"] for v in results["variants"] if v["training_causality"] == "none"]
    amounts = f"{large(equal['tokens']['budget'])} tokens and {large(equal['flops']['budget'])} FLOPs"
    left_open = [v["design"] for v in results["variants"] if "equal" in v and not is_counted(v)]
    uncounted = (
        f"FLOPs of {listing(left_open)} count all experts, though tokens may select fewer. They have no rank "
        "at equal FLOPs."
    )
    hidden = f"Losses of {listing(left_out)}, where training sees later tokens, are left out."
    return "\n".join(
        (
            f"Training loss in nats a token, with its 95 % interval over seeds: the mean over the last tenth "
            f"of {amounts}, which all spent. The order is that at equal FLOPs.\n",
            "- Where a budget ends before a training did, its learning rate had not yet come down.",
            *[f"- {uncounted}"] * bool(left_open),
            *[f"- {hidden}"] * bool(left_out),
            "",
        )
    )
