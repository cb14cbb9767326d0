"""docs/leaderboard.md, made of the results of `leaderboard.py` alone; its sentences are from intervals."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from leaderboard_tables import (
    baseline,
    budget_note,
    budget_table,
    by_perplexity,
    copies,
    domain_table,
    narrowed,
    perplexity_table,
    warmed,
)
from loriini.compare.remarks import EQUAL_ACTIVE
from loriini.compare.report import verdict_of
from loriini.compare.sections import first_segment_caveat
from loriini.evaluate.intervals import OVERALL
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
from ranking import is_counted, is_told_labels, of_equal_size, of_other_size, size_over_first

Row = Mapping[str, Any]

HEAD = """# Leaderboard

Causal designs, trained on the same text and compared on the same held-out tokens. Made by \
`benchmarks/figures.py` from `benchmarks/results/leaderboard.json`; nothing here is written by hand.

- **Text.** Domains and languages together in one corpus.
- **Designs.** Only causal ones. Designs whose experts depend on later tokens are left out, since their \
losses do not compare.
- **Dense warm-up.** All designs are trained without it, since many cannot have one. \
[What it changes](#what-a-dense-warm-up-changes) has a section of its own.
"""
COMMAND = (
    "python benchmarks/leaderboard.py --text PATH… --out WORK --results benchmarks/results/leaderboard.json"
)
OPTIONS = (
    "`--designs`, `--warm-designs`, `--rates`, `--rate-seeds`, `--steps`, `--seeds` and `--instances` make "
    "it shorter or longer."
)
COLUMNS = """- **Perplexity** is the mean over domains, in which hard domains weigh more, with its 95 % \
interval over seeds.
- **Differences** are relative, with two 95 % intervals: over seeds, and over held-out text \
([intervals](compare.md#intervals)).
- **Active** are the parameters that one token uses, **parameters** all of the model's.
"""
BUDGETS_DECIDE_NOTHING = (
    "- **Equal FLOPs.** No leader is named: a design that spends more a step is compared before its learning "
    "rate has come down. The [training losses](#equal-tokens-and-flops) are below.\n"
    "- **Seconds** are not compared here, since trainings shared a machine ([speed](speed.md))."
)


def leaderboard_page(path: Path) -> str:
    """The page; without results, how to make them."""
    text = partial(body, without_routing=path.with_name("copies.json"))
    return whole_page(path, HEAD, text, make_it(COMMAND, OPTIONS))


def body(results: Row, without_routing: Path) -> Iterable[str]:
    """The page's text below its head; `without_routing` is the file of `copies.py`."""
    control = json.loads(without_routing.read_text()) if without_routing.exists() else {}
    designs = {
        "designs": " ".join(v["design"] for v in results["variants"]),
        "warm-designs": " ".join(results["tried_warm"]),
    }
    return (
        "## Set-up\n",
        made_with(results),
        measured(results),
        *(f"- {remark}\n" for remark in results["remarks"]),
        "## Leaders of this comparison\n",
        f"- {advice(results)}",
        *told_labels(results["variants"]),
        BUDGETS_DECIDE_NOTHING,
        *helped_by_warmup(results),
        "",
        "How to read this:\n",
        *caution(results),
        *self_routed(results),
        "",
        "## Equal active parameters, equal tokens\n",
        COLUMNS,
        perplexity_table(results, of_equal_size(results["variants"])),
        "",
        verdicts(results),
        *apart(results),
        "## By domain\n",
        "Perplexity, means over seeds.\n",
        domain_table(results),
        "",
        "## Equal tokens and FLOPs\n",
        budget_note(results),
        budget_table(results),
        "",
        *warmed(results),
        *copies(control),
        *narrowed(results),
        "## Learning rates\n",
        chosen_rates(results),
        f"{losses_text(results)}:\n",
        *rates_section("design", results["tried"]),
        *["With a dense warm-up:\n", *rates_section("design", results["tried_warm"])]
        * bool(results["tried_warm"]),
        make_it(command_line(COMMAND, results, designs), OPTIONS),
    )


def measured(results: Row) -> str:
    """Which of the causal designs were measured, and which were not."""
    names = [v["design"] for v in by_perplexity(results["variants"])]
    trained = [v["design"] for v in results["variants"]]
    said = [f"Measured: {len(names)} of {len(results['causal'])} causal designs ({listing(names)})."]
    if unfinished := [name for name in trained if name not in names]:
        said.append(f"Trained, but finished with no seed: {listing(unfinished)}.")
    for v in by_perplexity(results["variants"]):
        if len(v["finished_seeds"]) < results["seeds"]:
            said.append(
                f"{v['design']} finished with {len(v['finished_seeds'])} of {results['seeds']} seeds."
            )
    if left_out := [name for name in results["causal"] if name not in trained]:
        said.append(f"Not measured: {listing(left_out)}.")
    return " ".join(said) + "\n"


def chosen_rates(results: Row) -> str:
    """How learning rates were chosen, and by which trainings designs are compared."""
    said = (
        f"Every design was trained with {choosing_seeds(results)} and {tried_rates_text(results)}",
        f"The rate of the lowest mean training loss was trained with {seeds_text(results)}. Held-out text "
        "has no part in the choice.",
        uncertain_choice(results["tried"], "designs"),
    )
    return "\n".join(f"- {each}" for each in said) + "\n"


def made_with(results: Row) -> str:
    """Sizes, seeds and machine."""
    shape = results["run"]["model"]
    sizes = {of: [v["parameters"][of] for v in results["variants"]] for of in ("active", "total")}
    return setup_table(
        results,
        f"width {shape['hidden_size']}, {shape['num_hidden_layers']} layers, {between(sizes['total'])} "
        f"parameters, {between(sizes['active'])} of them active",
    )


def advice(results: Row) -> str:
    """Who has the lowest perplexity, and whom the intervals do not tell apart from it."""
    found = results["leader"]
    if is_told_labels(found["design"]):
        return (
            f"**Equal active parameters and tokens.** No leader but {found['design']} is compared with the "
            f"others: their intervals are those of differences from {baseline(results)}."
        )
    names = [v["design"] for v in of_equal_size(results["variants"]) if not is_told_labels(v["design"])]
    differences = {name: each for name, each in found["differences"].items() if name in names}
    worse = [name for name, each in differences.items() if verdict_of(each) == "worse"]
    unclear = [name for name in differences if name not in worse]
    said = (
        f"**Equal active parameters and tokens.** {found['design']} has the lowest held-out perplexity of "
        "the designs that see tokens alone"
    )
    if not differences:
        return f"{said}. It is the only one."
    if not unclear:
        return f"{said}. All others are worse."
    told = f"Worse: {listing(worse)}" if worse else "No design is clearly worse"
    return f"{said}. The intervals do not tell it apart from {listing(unclear)}. {told}."


def helped_by_warmup(results: Row) -> list[str]:
    """Which designs a dense warm-up makes better."""
    differences = {
        name: each["difference"] for name, each in results["warmed"].items() if "difference" in each
    }
    better = [n for n, each in differences.items() if verdict_of(each) == "better"]
    if not better:
        return []
    return [
        f"- **Dense warm-up.** Of {listing(list(differences))}, better with it than without: "
        f"{listing(better)} ([by how much](#what-a-dense-warm-up-changes))."
    ]


def caution(results: Row) -> Sequence[str]:
    """What the sentences rest on."""
    return (
        "- **Worse** is a design whose 95 % interval lies above 0. The interval covers seeds, paired with "
        "those of the design it is compared with, and held-out text, added in quadrature.",
        "- **Many comparisons.** Each is judged by itself. Of many, some exclude 0 by chance. The leader is "
        "the best of several, by chance too.",
        f"- {long_documents(results['heldout'])}",
        "- **Sizes.** Trainings are short and models small. The order may be another at other sizes "
        "([`loriini compare --ladder`](compare.md#a-ladder-of-sizes)).",
    )


def self_routed(results: Row) -> list[str]:
    """Whose training loss counts a first segment that is routed by itself, and how long it is."""
    said = first_segment_caveat(results["variants"], "design")
    length = f"It is {results['heldout']['skip']} of {results['run']['length']} tokens."
    told = f"- **First segments.** {said} {length} Held-out perplexity does not count it."
    return [told] if said else []


def told_labels(variants: Sequence[Row]) -> list[str]:
    """Who knows more than the tokens."""
    told = [v for v in variants if is_told_labels(v["design"])]
    scored = by_perplexity(variants)
    if not told or not scored:
        return []
    domains = len(scored[0]["perplexity"].keys() - {OVERALL})
    return [
        f"- **A reference.** {listing([v['design'] for v in told])} is told the domain of every document, "
        f"held-out ones too, and has an expert for each of {domains} domains. It shows what knowing the "
        "domain is worth, but cannot be used where domains are unknown."
    ]


def apart(results: Row) -> list[str]:
    """The designs that use more parameters for a token, or fewer, which stand in no order with the others."""
    others = of_other_size(results["variants"])
    if not by_perplexity(others):
        return []
    times = [f"{v['design']} {size_over_first(v, results['variants']):.2f} times" for v in others]
    left_open = [v["design"] for v in others if not is_counted(v)]
    counted = f" For {listing(left_open)}, which may select any number of experts, all are counted."
    return [
        "### Of another active size\n",
        f"These designs are not ranked above, since their active parameters differ from "
        f"{baseline(results)}'s by more than {100 * (EQUAL_ACTIVE - 1):.0f} %: {listing(times)} as many."
        f"{counted if left_open else ''}\n",
        perplexity_table(results, others),
        "",
    ]


def verdicts(results: Row) -> str:
    """Who is better and worse than the first design."""
    groups: dict[str, list[str]] = {"better": [], "worse": [], "no clear difference": []}
    for v in by_perplexity(of_equal_size(results["variants"])):
        if "difference" in v:
            groups[verdict_of(v["difference"][OVERALL])].append(v["design"])
    rows = [[kind, listing(names)] for kind, names in groups.items() if names]
    return markdown([f"compared with {baseline(results)}", "designs"], rows) + "\n"
