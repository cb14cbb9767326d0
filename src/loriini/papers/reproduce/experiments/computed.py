"""Items without trainings of language models: sizes, the overhead formula, throughput."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

from loriini.papers.published import published_values
from loriini.papers.published.items import ITEMS
from loriini.papers.reproduce.charts import Chart, dots
from loriini.papers.reproduce.claims.claim import Claim, below, exactly
from loriini.papers.reproduce.claims.measured import Measured
from loriini.papers.reproduce.claims.quantities import Values, ratio
from loriini.papers.reproduce.experiments import common as c
from loriini.papers.reproduce.experiments.experiment import Experiment
from loriini.papers.reproduce.experiments.lory_communication import SENT_EXPERIMENT
from loriini.papers.reproduce.experiments.throughput import ROUNDS, memory, step_rates, timed_run
from loriini.papers.reproduce.experiments.toy import TOY_EXPERIMENT
from loriini.papers.reproduce.scales import Scale, paper_run
from loriini.recipes import default_vocabulary
from loriini.train.config import TrainConfig

CLOSE_TO_PRINTED = 0.03
"""Relative difference of a size to the printed one, which has two digits."""


def sizes(item: str) -> Mapping[str, Any]:
    """Parameters and shape of every run of an item, from its recipe."""
    rows = {}
    for row, paper in ITEMS[item].runs.items():
        run = paper_run(paper)
        total, active = run.config(default_vocabulary(run)).parameters()
        rows[row] = {
            "n_params": [total],
            "active": [active],
            "N": [run.model.num_hidden_layers],
            "D": [run.model.hidden_size],
            "n_head": [run.model.num_attention_heads],
        }
    return rows


def as_printed(m: Measured, item: str) -> Iterator[Claim]:
    """Totals and shapes are those of the table; dense models are named by a round size."""
    for row in ITEMS[item].runs:
        for printed in published_values(item, row):
            ours = m.extra[row][printed.column][0]
            if printed.column != "n_params":
                yield exactly(f"{row}: {printed.column}", ours, printed.value, printed.value)
            elif "/" in row:
                off = CLOSE_TO_PRINTED * printed.value
                yield exactly(f"{row}: parameters", ours, printed.value - off, printed.value + off)


def sizes_of(item: str) -> Experiment:
    """Table 4 or 5."""
    return Experiment(
        item,
        lambda m: as_printed(m, item),
        columns=lambda m, row: {name: m.computed(row, name) for name in m.extra[row]},
        trains=False,
        compute=lambda scale, seeds: sizes(item),
    )


def timed_runs(item: str, scale: Scale) -> dict[str, TrainConfig]:
    """The models of an item whose steps are timed."""
    return {row: timed_run(paper, scale) for row, paper in ITEMS[item].runs.items()}


def lory_throughput(scale: Scale, seeds: int) -> Mapping[str, Any]:
    """Tokens per second of every model of Lory's table 3."""
    return {"rates": step_rates(timed_runs("lory-table3", scale), scale.vocab_size, ROUNDS[scale.name])}


def slower_with_experts(m: Measured) -> Iterator[Claim]:
    """Every step up in experts is slower."""
    rows = list(ITEMS["lory-table3"].runs)
    for fewer, more in itertools.pairwise(rows):
        quantity = f"throughput of {more} over that of {fewer}"
        yield Claim(quantity, ratio(m.computed("rates", more), m.computed("rates", fewer)), high=1.0)


def throughput_columns(m: Measured, row: str, tokens: int = 1) -> Mapping[str, Values]:
    """So many tokens per second, and relative to the first row."""
    first = next(iter(m.extra["rates"]))
    rates = m.computed("rates", row)
    columns = {
        "throughput": c.scaled(rates, 1 / tokens),
        "throughput, relative": c.scaled(ratio(rates, m.computed("rates", first)), 100),
    }
    if "memory" in m.extra:
        columns["memory"] = {0: m.extra["memory"][row]}
    return columns


def throughput_chart(m: Measured) -> Iterator[Chart]:
    """Throughput relative to the first row."""
    series = {
        row: {"relative": throughput_columns(m, row)["throughput, relative"]} for row in m.extra["rates"]
    }
    yield dots("training throughput", "% of the first", series)


@cache
def merging() -> Mapping[str, float]:
    """FLOPs of merging in per cent of the FFN's by row of appendix B, from those at two segment lengths."""
    percentages = {}
    for row, paper in ITEMS["lory-appendix-b"].runs.items():
        run = paper_run(paper)
        if run.model.num_experts == 1:
            continue
        doubled = replace(run, routing=replace(run.routing, segment_length=2 * run.routing.segment_length))
        once, half = (r.config(32_000).flops_per_token(run.length) for r in (run, doubled))
        ffn = 6 * 3 * run.model.hidden_size * run.model.intermediate_size * run.model.num_hidden_layers
        percentages[row] = 100 * 2 * (once - half) / ffn
    return percentages


def slower_than_the_formula(m: Measured) -> Iterator[Claim]:
    """Merging costs E/T; training slows down by more."""
    for row, percent in merging().items():
        experts = int(row.split("/")[1].rstrip("E"))
        wanted = 100 * experts / 256
        yield exactly(
            f"{row}: FLOPs of merging", percent, 0.999 * wanted, 1.001 * wanted, unit="% of the FFN's"
        )
        yield Claim(
            f"{row}: slow-down minus the FLOPs of merging", slowdown(m, row, percent), low=0.0, unit="%"
        )


def slowdown(m: Measured, row: str, less: float = 0.0) -> Values:
    """How much slower training is than the dense model's, in per cent, minus a number."""
    relative = ratio(m.computed("rates", row), m.computed("rates", "0.3B"))
    return {i: 100 * (1 - value) - less for i, value in relative.items()}


def overhead_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """FLOPs of merging in per cent of the FFN's, and how much slower training is, in per cent."""
    if row not in merging():
        return {}
    return {"merging": {0: merging()[row]}, "training": slowdown(m, row)}


def aoe_throughput(scale: Scale, seeds: int) -> Mapping[str, Any]:
    """Throughput and memory of the traditional mixture and of AoE by rank."""
    runs = timed_runs("aoe-table4", scale)
    rates = step_rates(runs, scale.vocab_size, ROUNDS[scale.name])
    return {"rates": rates, "memory": {row: memory(run, scale.vocab_size) for row, run in runs.items()}}


def slower_and_larger(m: Measured) -> Iterator[Claim]:
    """Every rank reaches less than the mixture's throughput, the lowest most, and needs more memory."""
    moe = m.computed("rates", "MoE")
    ranks = [row for row in m.extra["rates"] if row != "MoE"]
    for row in ranks:
        low = 0.9 if row == ranks[0] else -math.inf
        quantity = f"throughput of {row} over that of MoE"
        yield Claim(quantity, ratio(m.computed("rates", row), moe), low=low, high=1.0)
    most, least = (m.computed("rates", row) for row in (ranks[-1], ranks[0]))
    yield below("throughput of AoE 512 minus AoE 64", most, least, unit="tokens/s")
    for row in ranks:
        extra = m.extra["memory"][row] - m.extra["memory"]["MoE"]
        yield exactly(f"memory of {row} minus that of MoE", extra, low=0.0, unit="GB")


COMPUTED_EXPERIMENTS = (
    sizes_of("lory-table4"),
    sizes_of("lory-table5"),
    SENT_EXPERIMENT,
    Experiment(
        "lory-table3",
        slower_with_experts,
        columns=throughput_columns,
        charts=throughput_chart,
        trains=False,
        compute=lory_throughput,
        timed=True,
        note="measured on this machine, in the paper on A100",
    ),
    Experiment(
        "lory-appendix-b",
        slower_than_the_formula,
        columns=overhead_columns,
        trains=False,
        compute=lory_throughput,
        computed_as="lory-table3",
        timed=True,
        note="measured on this machine, in the paper on A100",
    ),
    Experiment(
        "aoe-table4",
        slower_and_larger,
        columns=partial(throughput_columns, tokens=1000),
        charts=throughput_chart,
        trains=False,
        compute=aoe_throughput,
        timed=True,
        note="throughput is measured here; memory is weights, gradients, optimizer state and saved "
        "activations",
    ),
    TOY_EXPERIMENT,
)
