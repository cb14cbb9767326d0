"""docs/leaderboard.md, made of the results of `leaderboard.py` alone; its sentences are from intervals."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from leaderboard_tables import (
    baseline,
    budget_note,
    budget_table,
    by_perplexity,
    domain_table,
    narrowed,
    perplexity_table,
    warmed,
)
from loriini.analyze.wording import large, listing
from loriini.compare.remarks import EQUAL_ACTIVE
from loriini.compare.report import verdict_of
from loriini.compare.sections import first_segments
from loriini.compare.seeds import t_factor
from loriini.evaluate.intervals import OVERALL
from pages import (
    between,
    command_line,
    edges,
    make_it,
    rate_table,
    scored_on,
    seeds_text,
    start_text,
    tried_rates_text,
    whole_page,
)
from ranking import is_counted, is_told_labels, of_equal_size, of_other_size, size_over_first

Row = Mapping[str, Any]

HEAD = """# Leaderboard

Made by `benchmarks/figures.py` from `benchmarks/results/leaderboard.json`; nothing here is written by hand.

Causal designs on the same text: domains and languages together in one corpus. Designs whose experts depend \
on later tokens are not here: their losses do not compare. None has a dense warm-up but where it is said: \
many could not have one.
"""
COMMAND = (
    "python benchmarks/leaderboard.py --text PATH… --out WORK --results benchmarks/results/leaderboard.json"
)
OPTIONS = "`--designs`, `--rates`, `--steps`, `--seeds` and `--instances` make it shorter or longer."
BUDGETS_DECIDE_NOTHING = (
    "- At equal FLOPs no leader is named: a design that spends more a step is compared before its learning "
    "rate has fallen. [Below](#equal-tokens-and-flops) are the training losses. Seconds are not compared "
    "here: trainings shared a machine ([speed](speed.md))."
)


def leaderboard_page(path: Path) -> str:
    """The page; without results, how to make them."""
    warmup = path.with_name("warmup.json")
    return whole_page(path, HEAD, partial(body, warmup=warmup), make_it(COMMAND, OPTIONS))


def body(results: Row, warmup: Path) -> Iterable[str]:
    """The page's text below its head; `warmup` is the file of a leaderboard of few designs, more seeds."""
    warmups = json.loads(warmup.read_text()) if warmup.exists() else results
    at_edge = [name for name, tried in results["tried"].items() if tried["edge"]]
    designs = " ".join(v["design"] for v in results["variants"])
    return (
        measured(results),
        made_with(results),
        *(f"- {remark}\n" for remark in results["remarks"]),
        chosen_rates(results),
        "## Leaders of this comparison\n",
        told_labels(results["variants"]),
        f"- {advice(results)}",
        BUDGETS_DECIDE_NOTHING,
        *helped_by_warmup(results),
        "",
        caution(results),
        self_routed(results),
        "## Equal active parameters, equal tokens\n",
        perplexity_table(results, of_equal_size(results["variants"])),
        "",
        verdicts(results),
        *apart(results),
        "## By domain\n",
        domain_table(results),
        "",
        "Perplexity, means over seeds.\n",
        "## Equal tokens and FLOPs\n",
        budget_table(results),
        "",
        budget_note(results),
        *warmed(results, warmups),
        *narrowed(results),
        "## Learning rates\n",
        rate_table("", results["tried"].items()),
        "",
        f"Training loss of the first seed, mean of the last tenth of the steps. {edges(at_edge)}\n",
        make_it(command_line(COMMAND, results, {"designs": designs}), OPTIONS),
    )


def measured(results: Row) -> str:
    """Which of the causal designs were measured, and which were not."""
    names = [v["design"] for v in by_perplexity(results["variants"])]
    trained = [v["design"] for v in results["variants"]]
    said = [f"Measured are {len(names)} of {len(results['causal'])} causal designs: {listing(names)}."]
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
    return (
        f"Every design was trained with seed 0 and {tried_rates_text(results)}. The rate of the lowest "
        f"training loss was trained with {seeds_text(results)}; held-out text has no part in the choice."
        f"{uncertain_choice(results['variants'])}\n"
    )


def uncertain_choice(variants: Sequence[Row]) -> str:
    """How much the losses that rates were chosen by differ between seeds."""
    deviations = [
        (loss["high"] - loss["low"]) / 2 / t_factor(len(v["finished_seeds"]))
        for v in variants
        if (loss := v.get("training_loss")) and loss["low"] is not None
    ]
    if not deviations:
        return ""
    return (
        f" Between seeds the training loss of a design varies by {fmean(deviations):.2f} nats (standard "
        "deviation, mean over designs): the choice of a rate by one seed is uncertain, and no interval "
        "covers it."
    )


def made_with(results: Row) -> str:
    """Sizes, seeds and machine."""
    run = results["run"]
    shape = run["model"]
    tokens = run["steps"] * run["batch_size"] * run["length"]
    sizes = {of: [v["parameters"][of] for v in results["variants"]] for of in ("active", "total")}
    return (
        f"{run['steps']:,} steps of {run['batch_size']} × {run['length']} tokens ({large(tokens)}), "
        f"{results['seeds']} seeds, width {shape['hidden_size']}, {shape['num_hidden_layers']} layers, "
        f"{between(sizes['active'])} active parameters of {between(sizes['total'])}, {start_text(run)}; "
        f"{scored_on(results)}"
    )


def advice(results: Row) -> str:
    """Who has the lowest perplexity, and whom the intervals do not tell apart from it."""
    found = results["leader"]
    if is_told_labels(found["design"]):
        return (
            f"At equal active parameters and equal tokens no leader but {found['design']} is compared with "
            f"the others: their intervals are those of differences from {baseline(results)}."
        )
    names = [v["design"] for v in of_equal_size(results["variants"]) if not is_told_labels(v["design"])]
    differences = {name: each for name, each in found["differences"].items() if name in names}
    worse = [
        name for name, each in differences.items() if verdict_of({"difference": {OVERALL: each}}) == "worse"
    ]
    unclear = [name for name in differences if name not in worse]
    said = f"At equal active parameters and equal tokens, by held-out perplexity: **{found['design']}**"
    if not differences:
        return f"{said}, alone."
    if not unclear:
        return f"{said}; all others are worse."
    told = f"worse: {listing(worse)}" if worse else "no design is clearly worse"
    return f"{said}; the intervals do not tell it apart from {listing(unclear)}; {told}."


def helped_by_warmup(results: Row) -> list[str]:
    """Which designs a dense warm-up makes better."""
    differences = {
        name: each["difference"] for name, each in results["warmed"].items() if "difference" in each
    }
    better = [n for n, each in differences.items() if verdict_of({"difference": {OVERALL: each}}) == "better"]
    if not better:
        return []
    return [
        f"- With a dense warm-up these are better than without, of {len(differences)} that admit one: "
        f"{listing(better)} ([by how much](#what-a-dense-warm-up-changes))."
    ]


def caution(results: Row) -> str:
    """What the sentences rest on."""
    return (
        "A design counts as worse where its 95 % interval lies above 0: over seeds, paired with those of the "
        "design it is compared with, and over held-out text, added in quadrature. Each stands for itself: of "
        "many comparisons some exclude 0 by chance, and the leader is the best of several by chance too. "
        "Where documents are long, the held-out instances of a domain begin in few of them, of few books or "
        "repositories: the interval over held-out text does not cover another choice of these. Trainings "
        "are short and models small: the order may be another at other sizes "
        "([`loriini compare --ladder`](compare.md#a-ladder-of-sizes)).\n"
    )


def self_routed(results: Row) -> str:
    """Whose training loss counts a first segment that is routed by itself, and how long it is."""
    said = first_segments(results["variants"], "design")
    length = f"It is {results['heldout']['skip']} of {results['run']['length']} tokens."
    return f"{said} {length} Held-out perplexity does not count it.\n" if said else ""


def told_labels(variants: Sequence[Row]) -> str:
    """Who knows more than the tokens, and the best of the others."""
    told = [v for v in variants if is_told_labels(v["design"])]
    others = [v for v in by_perplexity(of_equal_size(variants)) if v not in told]
    if not told or not others:
        return ""
    best = others[0]
    domains = len(best["perplexity"].keys() - {OVERALL})
    compared = f" (compared with {variants[0]['design']}: {verdict_of(best)})" if "difference" in best else ""
    return (
        f"{listing([v['design'] for v in told])} is told the domain of every document, held-out ones too, "
        f"and has an expert for each of {domains} domains: a reference for what knowing the domain is worth, "
        "not a choice where domains are unknown. Of those that see tokens alone, "
        f"{best['design']} has the lowest perplexity{compared}.\n"
    )


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
        f"Not ranked above, for their active parameters differ from {baseline(results)}'s by more than "
        f"{100 * (EQUAL_ACTIVE - 1):.0f} %: {listing(times)} as many.{counted if left_open else ''}\n",
        perplexity_table(results, others),
        "",
    ]


def verdicts(results: Row) -> str:
    """Who is better and worse than the first design."""
    groups: dict[str, list[str]] = {"better": [], "worse": [], "no clear difference": []}
    for v in by_perplexity(of_equal_size(results["variants"])):
        if "difference" in v:
            groups[verdict_of(v)].append(v["design"])
    said = [f"{kind}: {listing(names)}" for kind, names in groups.items() if names]
    return f"Compared with {baseline(results)}: {'; '.join(said)}.\n"
