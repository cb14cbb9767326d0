"""Items without trainings of language models: sizes, communication, the overhead formula, throughput."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

from loriini.bench.models import build_steps, step_bytes
from loriini.bench.timing import Case, in_rounds
from loriini.common.progress import progress
from loriini.papers.published import ITEMS, published_values
from loriini.papers.reproduce.charts import Chart, dots
from loriini.papers.reproduce.claim import Claim, below, exactly
from loriini.papers.reproduce.experiments import common as c
from loriini.papers.reproduce.measured import Measured
from loriini.papers.reproduce.plan import Experiment
from loriini.papers.reproduce.quantities import Values, ratio
from loriini.papers.reproduce.scales import Scale, paper_run, scaled_run
from loriini.recipes import default_vocabulary
from loriini.train.config import TrainConfig

CLOSE_TO_PRINTED = 0.03
"""Relative difference of a size to the printed one, which has two digits."""
GPUS, MICRO_BATCH = 8, 4
"""Ranks that share every expert's width, and their instances."""
ZERO, EXPERT_WISE = "data parallelism (ZeRO)", "expert-wise"
EXPERT_PARALLEL = "expert parallelism, top-2"
TIMED = {
    "tiny": Scale("tiny", {"0.3b": (256, 2, 4), "732m": (192, 2, 3)}, batch_size=2, length=1024),
    "small": Scale("small", {"0.3b": (512, 4, 8), "732m": (384, 4, 6)}, batch_size=4, length=1024),
    "paper": Scale("paper", {"0.3b": (1024, 24, 16), "732m": (768, 12, 12)}, batch_size=4, length=4096),
}
"""Models that are timed; `paper` is for a GPU."""
ROUNDS = {"tiny": 4, "small": 12, "paper": 16}
"""Even numbers: each case is measured before and after the others equally often."""


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
        partial(as_printed, item=item),
        columns=lambda m, row: {name: m.computed(row, name) for name in m.extra[row]},
        compute=lambda scale, seeds: sizes(item),
    )


def bytes_sent(scale: Scale, seeds: int) -> Mapping[str, Any]:
    """GB that each of GPUS ranks receives in a step of one micro-batch in bfloat16 (Lory section 6).

    Ring algorithms send as much. ZeRO gathers all parameters and reduces all gradients. Expert-wise
    parallelism gathers the states of all ranks and scatters the sums of outputs in place of the experts;
    expert parallelism sends the states of each token and expert there, and the outputs back.
    """
    gigabytes: dict[str, dict[str, float]] = {ZERO: {}, EXPERT_PARALLEL: {}, EXPERT_WISE: {}}
    for row, paper in ITEMS["lory-table3"].runs.items():
        run = paper_run(paper)
        config = run.config(default_vocabulary(run))
        counts, layers = config.sizes(), config.num_hidden_layers
        gigabytes[ZERO][row] = zero_bytes(counts.experts + counts.layers, counts.root) / 1e9
        if run.is_mixture:
            rest = zero_bytes(counts.layers, counts.root)
            tokens = MICRO_BATCH * run.length
            states = 4 * 2 * tokens * config.hidden_size  # and outputs, and the gradients of both
            gates = 2 * 4 * tokens // run.routing.segment_length * config.num_experts
            others = GPUS - 1
            gigabytes[EXPERT_PARALLEL][row] = (rest + layers * others / GPUS * 2 * states) / 1e9
            gigabytes[EXPERT_WISE][row] = (rest + layers * others * (states + gates)) / 1e9
    return {"rows": list(gigabytes), "bytes": gigabytes}


def zero_bytes(layers: int, root: int) -> float:
    """Bytes of a step of ZeRO, for parameters in the layers and outside of them.

    Layers are gathered in bfloat16 for the forward and for the backward pass, the rest once in float32, as
    gradients are reduced.
    """
    return (GPUS - 1) / GPUS * (2 * 2 * layers + 4 * root + 4 * (layers + root))


def sent_by_experts(m: Measured) -> Iterator[Claim]:
    """With expert-wise parallelism 32 experts send no more than 8, unlike data parallelism."""
    few, many = ({name: by_row[f"0.3B/{e}E"] for name, by_row in m.extra["bytes"].items()} for e in (8, 32))
    for name, low, high in ((EXPERT_WISE, 0.0, 1.05), (ZERO, 2.0, 8.0)):
        yield exactly(f"{name}: bytes with 32 experts over those with 8", many[name] / few[name], low, high)
    yield exactly("expert-wise over data parallelism, 32 experts", many[EXPERT_WISE] / many[ZERO], high=1.0)


def bytes_chart(m: Measured) -> Iterator[Chart]:
    series = {
        name: {row: {0: value} for row, value in by_row.items()} for name, by_row in m.extra["bytes"].items()
    }
    yield dots(f"sent by each of {GPUS} ranks", "GB a step", series)


def timed_runs(item: str, scale: Scale) -> dict[str, TrainConfig]:
    """The models of an item in the size that is timed at a scale, mixtures from their first step."""
    size = replace(TIMED[scale.name], segment_length=256)
    runs = {row: scaled_run(paper, size) for row, paper in ITEMS[item].runs.items()}
    return {
        row: replace(
            run,
            model=replace(run.model, vocab_size=scale.vocabulary(run)),
            warmup=replace(run.warmup, dense_share=0),
        )
        for row, run in runs.items()
    }


def step_rates(runs: Mapping[str, TrainConfig], scale: Scale) -> dict[str, list[float]]:
    """Tokens per second of each run's training step by round, timed in turn on this machine."""
    cases = [Case(row, run.model.num_experts, partial(build_steps, run)) for row, run in runs.items()]
    rates: dict[str, list[float]] = {row: [] for row in runs}
    rounds = ROUNDS[scale.name]
    with progress("timing", rounds) as advance:
        for seconds in in_rounds(cases, rounds):
            for (row, run), each in zip(runs.items(), seconds, strict=True):
                rates[row].append(run.batch_size * run.length / each)
            advance()
    return rates


def throughput(scale: Scale, seeds: int, item: str, with_memory: bool = False) -> Mapping[str, Any]:
    """Tokens per second of every model of an item, and the GB that its training takes."""
    runs = timed_runs(item, scale)
    gigabytes = {row: step_bytes(run)["total"] / 1e9 for row, run in runs.items()} if with_memory else {}
    return {"rates": step_rates(runs, scale), "memory": gigabytes}


def relative_rate(m: Measured, row: str, to: str) -> Values:
    """A row's throughput over another's, by round."""
    return ratio(m.computed("rates", row), m.computed("rates", to))


def slower_with_experts(m: Measured) -> Iterator[Claim]:
    """Every step up in experts is slower."""
    for fewer, more in itertools.pairwise(ITEMS["lory-table3"].runs):
        yield Claim(f"throughput of {more} over that of {fewer}", relative_rate(m, more, fewer), high=1.0)


def throughput_columns(m: Measured, row: str, tokens: int = 1) -> Mapping[str, Values]:
    """Throughput in units of `tokens` per second and in per cent of the first row's, and memory in GB."""
    first = next(iter(m.extra["rates"]))
    return {
        "throughput": c.scaled(m.computed("rates", row), 1 / tokens),
        "throughput, relative": c.scaled(relative_rate(m, row, first), 100),
        "memory": {0: gigabytes} if (gigabytes := m.extra["memory"].get(row)) else {},
    }


@cache
def merging() -> Mapping[str, float]:
    """Row of appendix B → FLOPs of merging in per cent of the FFN's, from those at two segment lengths."""
    percentages = {}
    for row, paper in ITEMS["lory-appendix-b"].runs.items():
        run = paper_run(paper)
        if run.model.num_experts == 1:
            continue
        doubled = replace(run, routing=replace(run.routing, segment_length=2 * run.routing.segment_length))
        vocabulary = default_vocabulary(run)
        once, half = (r.config(vocabulary).flops_per_token(run.length) for r in (run, doubled))
        ffn = 6 * 3 * run.model.hidden_size * run.model.intermediate_size * run.model.num_hidden_layers
        percentages[row] = 100 * 2 * (once - half) / ffn
    return percentages


def slower_than_the_formula(m: Measured) -> Iterator[Claim]:
    """Merging costs E/T; training slows down by more."""
    for row, percent in merging().items():
        wanted = 100 * int(row.split("/")[1].rstrip("E")) / 256
        quantity = f"{row}: FLOPs of merging"
        yield exactly(quantity, percent, 0.999 * wanted, 1.001 * wanted, unit="% of the FFN's")
        extra = {i: value - percent for i, value in slowdown(m, row).items()}
        yield Claim(f"{row}: slow-down minus the FLOPs of merging", extra, low=0.0, unit="%")


def slowdown(m: Measured, row: str) -> Values:
    """How much slower training is than the dense model's, in per cent."""
    return {i: 100 * (1 - value) for i, value in relative_rate(m, row, "0.3B").items()}


def overhead_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """FLOPs of merging in per cent of the FFN's, and how much slower training is, in per cent."""
    return {"merging": {0: merging()[row]}, "training": slowdown(m, row)} if row in merging() else {}


def slower_and_larger(m: Measured) -> Iterator[Claim]:
    """Every rank reaches less than the mixture's throughput, the lowest most, and needs more memory."""
    ranks = [row for row in m.extra["rates"] if row != "MoE"]
    for row in ranks:
        low = 0.9 if row == ranks[0] else -math.inf
        yield Claim(f"throughput of {row} over that of MoE", relative_rate(m, row, "MoE"), low, high=1.0)
    rate = partial(m.computed, "rates")
    yield c.compare(partial(below, unit="tokens/s"), "throughput", rate, ranks[-1], ranks[0])
    for row in ranks:
        extra = m.extra["memory"][row] - m.extra["memory"]["MoE"]
        yield exactly(f"memory of {row} minus that of MoE", extra, low=0.0, unit="GB")


by_rate = partial(Experiment, columns=throughput_columns)

COMPUTED_EXPERIMENTS = (
    sizes_of("lory-table4"),
    sizes_of("lory-table5"),
    Experiment(
        "lory-fig7",
        sent_by_experts,
        columns=lambda m, row: {f"{name}, GB": {0: sent} for name, sent in m.extra["bytes"][row].items()},
        charts=bytes_chart,
        compute=bytes_sent,
    ),
    by_rate("lory-table3", slower_with_experts, compute=partial(throughput, item="lory-table3")),
    by_rate(
        "lory-appendix-b",
        slower_than_the_formula,
        columns=overhead_columns,
        compute=partial(throughput, item="lory-table3"),
        computed_as="lory-table3",
    ),
    by_rate(
        "aoe-table4",
        slower_and_larger,
        columns=partial(throughput_columns, tokens=1000),
        compute=partial(throughput, item="aoe-table4", with_memory=True),
    ),
)
