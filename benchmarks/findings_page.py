"""Tables and pictures of docs/findings.md, and the README's table, from the results of findings.py.

python benchmarks/findings_page.py [--results FILE]

A table stands between `<!-- table NAME -->` and `<!-- end -->`, and is replaced there.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from findings import MIXTURES, NARROW, OF_OTHER_TEXT, RESULTS, best_rate
from loriini.common.atomic import write_text
from loriini.compare.figures import differences
from loriini.compare.results import difference, with_mean
from loriini.compare.seeds import geometric, over_seeds, over_seeds_and_text
from loriini.evaluate.intervals import OVERALL, differences_by_domain
from loriini.reporting import plots
from loriini.reporting.wording import minus, signed

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs" / "findings.md", ROOT / "README.md")
PICTURES = ROOT / "docs" / "pictures"
GREY = "#7d8590"
"""Legible on white and on black, for a picture that has no page around it whose colour it could take."""

ADAMW_NARROW = f", AdamW{NARROW}"
"""How variants that are trained so end."""

Results = Mapping[str, Any]
Pairs = tuple[tuple[str, str], ...]
"""Variants, each with the one that it is compared with."""


def beside(baseline: str, *names: str, ending: str = "") -> Pairs:
    """These variants compared with one, all with this ending of their names."""
    return tuple((f"{name}{ending}", f"{baseline}{ending}") for name in names)


COMPARED: dict[str, Pairs] = {
    "readme": (*beside("dense", "mixtral", "deepseek-v3", "lory"), *beside("lory", "prefix")),
    "designs": beside(
        "dense", "dense", "mixtral", "lory", "deepseek-v3", "ec-token", "aoe", "switch", "relu", "frozen"
    ),
    "starts": (
        *beside("dense", "lory", "lory, copies", "lory, dense warm-up"),
        *beside("lory", "lory, copies", "lory, dense warm-up"),
    ),
    "width-128": beside("dense", "dense", "mixtral", "lory", ending=", width 128"),
    "longer": (
        *beside("dense", "dense", *MIXTURES, "frozen", ending=NARROW),
        *beside("dense", "dense", "mixtral", "lory"),
    ),
    "repeated": (
        *beside("lory", "prefix", "ec-token", ending=NARROW),
        *beside("mixtral", "frozen", "aoe", ending=NARROW),
    ),
    "adamw": (
        *beside("dense", "dense", *MIXTURES, ending=ADAMW_NARROW),
        (f"dense, AdamW, half the rate{NARROW}", f"dense{ADAMW_NARROW}"),
        *((f"{name}{ADAMW_NARROW}", f"{name}{NARROW}") for name in ("dense", "mixtral", "lory")),
    ),
    "initializer": tuple(
        (f"{name}{optimizer}, initializer{NARROW}", f"{name}{optimizer}{NARROW}")
        for optimizer in (", AdamW", "")
        for name in MIXTURES
    ),
    "units": beside("lory", "prefix"),
    "order": (("lory", "dense"), ("lory, random order", "dense, random order")),
    "languages": beside("dense", "dense", "mixtral", "sequence-top2", "global-top2", "label"),
    "expert-choice": beside("lory", "ec-token"),
    "routers": beside("mixtral", "frozen", "random", "aoe"),
    "segments": beside("lory", "lory, segments of 64", "lory, segments of 32"),
    "experts": (
        *beside("dense", "lory, 4 experts", "lory", "lory, 16 experts"),
        ("lory, 16 experts", "lory, 4 experts"),
    ),
    "prompt": beside("lory", "lory, routed by the prompt"),
    "scales": (
        *beside("dense", "lory", "lory, initializer", "ec-token", "ec-token, initializer"),
        ("lory, initializer", "lory"),
        ("ec-token, initializer", "ec-token"),
        ("lory, AdamW, initializer", "lory, AdamW"),
    ),
}
"""The rows of each table."""
RATES_DRAWN = ("dense", "lory", "mixtral", "dense, AdamW", "lory, AdamW")
"""Variants of the picture of learning rates."""
AGREEING = (
    *("lory", "mixtral", "deepseek-v3", "ec-token", "aoe", "switch", "relu"),
    *("sequence-top2", "global-top2"),
)
"""Variants of the tables of agreement."""


def compare(results: Results, name: str, baseline: str, unlike: bool = False) -> dict[str, Any]:
    """A variant's means over seeds, and its `difference` from another as in the results of a comparison.

    On the domains of the training text, or on those that are `unlike` it.
    """
    domains = [domain for domain in results["tokens"] if (domain in results["unlike"]) == unlike]

    def within(of_domain: Mapping[str, Any]) -> dict[str, Any]:
        return {domain: of_domain[domain] for domain in domains}

    variant = results["variants"][name]
    base, own = (
        {
            int(seed): score
            | {
                "perplexity": with_mean(within(score["perplexity"])),
                "instance_losses": within(score["losses"]),
            }
            for seed, score in of["seeds"].items()
        }
        for of in (results["variants"][baseline], variant)
    )
    seeds = sorted(base.keys() & own.keys())
    tokens = within(results["tokens"])
    return {
        "name": name,
        "baseline": baseline,
        "causal": variant["causality"] != "none",
        "parameters": variant["parameters"],
        "rate": variant["rate"],
        "seeds": len(seeds),
        "loss": over_seeds([score["new_loss"] for score in own.values()]).mean,
        "of_loss": over_seeds([own[seed]["new_loss"] - base[seed]["new_loss"] for seed in seeds]),
        "perplexity": {
            domain: geometric([score["perplexity"][domain] for score in own.values()]).mean
            for domain in (*domains, OVERALL)
        },
        "difference": difference(base, own, seeds, partial(differences_by_domain, tokens=tokens)),
    }


def on_text(results: Results, question: str) -> Results:
    """The results on a question's text; without variants if there are none."""
    return results.get(OF_OTHER_TEXT[question], {"variants": {}}) if question in OF_OTHER_TEXT else results


def compared(results: Results, table: str) -> list[dict[str, Any]]:
    """The rows of a table: of its pairs that are measured."""
    results = on_text(results, table)
    measured = results["variants"].keys()
    return [compare(results, *pair) for pair in COMPARED[table] if measured >= {*pair}]


def read_results(path: Path) -> dict[str, Any]:
    """The results at a path, and those of other texts next to it, under the names of the texts."""
    others = {name: path.with_name(f"{path.stem}_{name}.json") for name in OF_OTHER_TEXT.values()}
    results: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return results | {
        name: json.loads(other.read_text("utf-8")) for name, other in others.items() if other.exists()
    }


def with_interval(value: float, low: float, high: float, digits: int) -> str:
    """A difference and its interval, bold where that excludes 0."""
    text = f"{signed(value, digits)} ({signed(low, digits)} to {signed(high, digits)})"
    return f"**{text}**" if low > 0 or high < 0 else text


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def differences_of(row: Mapping[str, Any]) -> tuple[str, str]:
    """The differences of the loss, in nats, and of perplexity, in %, with their intervals."""
    of_loss = row["of_loss"]
    return (with_interval(of_loss.mean, of_loss.low, of_loss.high, digits=3), of_perplexity(row, OVERALL))


def of_perplexity(row: Mapping[str, Any], domain: str) -> str:
    """The difference of perplexity on a domain, in %, with its interval."""
    both = over_seeds_and_text(row["difference"][domain])
    return with_interval(100 * both.change, 100 * both.low, 100 * both.high, digits=1)


def comparison(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of compared variants; a difference is bold where its interval excludes 0.

    A variant beside itself is the baseline, without a difference.
    """
    several = len({row["baseline"] for row in rows}) > 1
    head = ["variant", *["compared with"] * several, "active (all) parameters, thousands", "rate", "loss"]
    head += ["difference (95 %)", "perplexity", "change, % (95 %)", "seeds"]
    cells = []
    for row in rows:
        by_loss, by_perplexity = differences_of(row) if row["name"] != row["baseline"] else ("", "")
        cells.append(
            [
                row["name"] if row["causal"] else f"{row['name']} (not causal)",
                *[row["baseline"]] * several,
                "{active:.0f} ({total:.0f})".format(**{k: n / 1000 for k, n in row["parameters"].items()}),
                f"{float(row['rate']):g}",
                f"{row['loss']:.3f}",
                by_loss,
                f"{row['perplexity'][OVERALL]:.1f}",
                by_perplexity,
                f"{row['seeds']}",
            ]
        )
    return table(head, cells)


def compared_table(results: Results, table: str) -> str:
    """The table of this name, of variants and what they are compared with."""
    return comparison(compared(results, table))


def gain_of_order(results: Results) -> dict[str, tuple[str, str]]:
    """How Lory's gain with similar documents side by side differs from that in random order."""
    results = on_text(results, "order")
    variants = results["variants"]
    if not variants.keys() >= {*chain(*COMPARED["order"])}:
        return {}
    names = ("lory", "dense", "dense, random order")
    own, base, other = (variants[name]["seeds"] for name in names)

    def moved(seed: str) -> dict[str, Any]:
        """Scores that differ from those of `lory, random order` as one gain does from the other."""
        a, b, c = (scores[seed] for scores in (own, base, other))
        ppl_a, ppl_b, ppl_c = (score["perplexity"] for score in (a, b, c))
        losses = {d: np.array(a["losses"][d]) - b["losses"][d] + c["losses"][d] for d in a["losses"]}
        return {
            "new_loss": a["new_loss"] - b["new_loss"] + c["new_loss"],
            "perplexity": {d: ppl_a[d] / ppl_b[d] * ppl_c[d] for d in losses},
            "losses": losses,
        }

    # a study that was interrupted has fewer of some
    seeds = {seed: moved(seed) for seed in sorted(own.keys() & base.keys() & other.keys())}
    made = {**variants["lory"], "seeds": seeds}
    row = compare({**results, "variants": {**variants, "": made}}, "", "lory, random order")
    return {"lory's gain over dense, in similar relative to random order": differences_of(row)}


def by_domain(results: Results, question: str, columns: Mapping[str, tuple[str, str]]) -> str:
    """The table of differences of perplexity by domain, with a column for each pair of variants."""
    results, rows = on_text(results, question), []
    measured = results["variants"].keys() >= {*chain(*columns.values())}
    for unlike in (False, True) if measured and results["unlike"] else ():
        every = [compare(results, *pair, unlike) for pair in columns.values()]
        domains = [*every[0]["perplexity"]]  # the last is all, which is the same where there is one
        for domain in domains if len(domains) > 2 else domains[:1]:
            name = "their mean" if domain == OVERALL else domain
            changes = (of_perplexity(row, domain) for row in every)
            rows.append([name, "no" if unlike else "yes", *changes])
    return table(["domain", "in the training text", *(f"{column}, %" for column in columns)], rows)


def as_lines(differences: Mapping[str, tuple[str, str]]) -> str:
    """A line for each comparison."""
    return "".join(
        f"- {what}: perplexity {change} %, loss {of}\n" for what, (of, change) in differences.items()
    )


def rates_of(tried: Mapping[str, Mapping[str, Any]]) -> list[float]:
    """All learning rates that were tried for some variant."""
    return sorted({float(rate) for of_variant in tried.values() for rate in of_variant})


def rates(results: Results) -> str:
    """The table of training losses by learning rate."""
    every, rows = rates_of(results["tried"]), []
    for name, tried in results["tried"].items():
        losses = {float(rate): "" if loss is None else f"{loss:.2f}" for rate, loss in tried.items()}
        best = float(best_rate(tried))
        rows.append([name, *(f"**{losses[r]}**" if r == best else losses.get(r, "") for r in every)])
    return table(["variant", *(f"{rate:g}" for rate in every)], rows)


def start_scales(results: Results) -> str:
    """The table of the RMS of what untrained FFNs add."""
    scales = ("initializer", "dense")
    rows = [[name, *(f"{of[s]:.3f}" for s in scales)] for name, of in results.get("branch_rms", {}).items()]
    return table(["design", *(f"`{scale}`" for scale in scales)], rows)


def agreements(results: Results) -> str:
    """The table of how far experts and domains agree, by layer."""
    variants, rows = results["variants"], []
    for name in (name for name in AGREEING if name in variants):
        by_seed = [score["agreement"] for score in variants[name]["seeds"].values()]
        layers = [over_seeds(of_layer) for of_layer in zip(*by_seed, strict=True)]
        rows.append([name, *(minus(f"{x.mean:.2f} ({x.low:.2f} to {x.high:.2f})") for x in layers)])
    return table(["design", *(f"layer {i}" for i in range(len(rows[0]) - 1 if rows else 0))], rows)


def changes(every: Sequence[Mapping[str, Any]]) -> str:
    """The picture of variants that are compared with the first one's baseline."""
    baseline = every[0]["baseline"]
    rows = [row for row in every if row["baseline"] == baseline != row["name"]]
    return differences(rows, baseline, {row["name"]: i + 1 for i, row in enumerate(rows)})


@plots.picture
def loss_by_rate(results: Results) -> Figure:
    """Training loss over the learning rate, a line for each of RATES_DRAWN."""
    figure, axes = plots.one_plot(3.2)
    drawn = {name: results["tried"][name] for name in RATES_DRAWN if name in results["tried"]}
    for name, tried in drawn.items():
        points = sorted((float(rate), loss) for rate, loss in tried.items() if loss)
        axes.plot(
            *zip(*points, strict=True), "--" if "AdamW" in name else "-", marker="o", markersize=3, label=name
        )
    axes.set_xscale("log")
    every = rates_of(drawn)
    axes.set_xticks(every, [f"{rate:g}" for rate in every])
    axes.minorticks_off()
    axes.set_xlabel("learning rate")
    axes.set_title(f"Training loss after {results['rate_steps']} steps")
    plots.legend(figure, axes)
    return figure


TABLES: dict[str, Callable[[Results], str]] = {
    **{name: partial(compared_table, table=name) for name in COMPARED},
    "interaction": lambda results: as_lines(gain_of_order(results)),
    "readme": lambda results: as_lines(
        {
            "{name} relative to {baseline}".format(**row): differences_of(row)
            for row in compared(results, "readme")
        }
    ),
    "rates": rates,
    "start-scales": start_scales,
    "agreement": agreements,
    "agreement-languages": lambda results: agreements(on_text(results, "languages")),
    "agreement-domains": lambda results: agreements(on_text(results, "longer")),
    "domains": partial(
        by_domain,
        question="order",
        columns=dict(zip(("similar order", "random order"), COMPARED["order"], strict=True)),
    ),
    "domains-longer": partial(
        by_domain, question="longer", columns={name: (name, "dense") for name in ("mixtral", "lory")}
    ),
}


def with_tables(page: str, results: Results) -> str:
    """A page with its tables made anew."""

    def made(match: re.Match[str]) -> str:
        return f"<!-- table {match[1]} -->\n\n{TABLES[match[1]](results)}\n<!-- end -->"

    return re.sub(r"<!-- table ([a-z0-9-]+) -->\n.*?<!-- end -->", made, page, flags=re.DOTALL)


def pictures(page: str, results: Results) -> Iterator[tuple[str, str]]:
    """The file and the SVG of each picture that a page shows."""
    for file, name in re.findall(r"pictures/(findings_([a-z-]+)\.svg)", page):
        drawn = loss_by_rate(results) if name == "rates" else changes(compared(results, name))
        yield file, drawn.replace("currentColor", GREY)


def main() -> None:
    """Write tables and pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    results = read_results(parser.parse_args().results)
    for path in PAGES:
        page = with_tables(path.read_text("utf-8"), results)
        write_text(path, page)
        for file, svg in pictures(page, results):
            write_text(PICTURES / file, svg)


if __name__ == "__main__":
    main()
