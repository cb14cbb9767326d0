"""Lory's figure 7 as an item: bytes sent by parallelism, by the formula and by processes of this machine."""

from collections.abc import Iterator, Mapping
from typing import Any

from loriini.estimate.communication import RankStep, expert_parallel, expert_wise, fsdp
from loriini.papers.published.items import ITEMS
from loriini.papers.reproduce.charts import Chart, dots
from loriini.papers.reproduce.claims.claim import Claim, exactly
from loriini.papers.reproduce.claims.measured import Measured, at
from loriini.papers.reproduce.claims.quantities import Values
from loriini.papers.reproduce.experiments.experiment import Experiment
from loriini.papers.reproduce.experiments.sending import EXPERT_WISE, RANKS, ZERO, sent_here
from loriini.papers.reproduce.scales import Scale, paper_run
from loriini.recipes import with_design

GPUS, MICRO_BATCH = 8, 4
"""Ranks that share every expert's width."""
EXPERT_PARALLEL = "expert parallelism, top-2"
WITHIN = 0.01
"""Relative difference of what is sent to the formula: FSDP pads parameters that ranks do not divide."""


def bytes_sent(scale: Scale, seeds: int) -> Mapping[str, Any]:
    """GB that each of GPUS ranks sends in a step of one micro-batch, and what is sent on this machine."""
    gigabytes: dict[str, dict[str, float]] = {ZERO: {}, EXPERT_PARALLEL: {}, EXPERT_WISE: {}}
    for row, paper in ITEMS["lory-table3"].runs.items():
        run = paper_run(paper)
        step = RankStep(MICRO_BATCH, run.length, 1, 2)
        config = run.config(32_000)
        gigabytes[ZERO][row] = fsdp(config, step, GPUS, GPUS).total / 1e9
        if run.is_mixture:
            routed = with_design(run, "mixtral").config(32_000)
            whole = expert_parallel(routed, step, GPUS, GPUS, GPUS)
            assert whole is not None
            gigabytes[EXPERT_PARALLEL][row] = whole.total / 1e9
            gigabytes[EXPERT_WISE][row] = expert_wise(config, step, GPUS, GPUS, GPUS).total / 1e9
    return {"rows": list(gigabytes), "bytes": gigabytes, **sent_here()}


def sent_by_experts(m: Measured) -> Iterator[Claim]:
    """With expert-wise parallelism 32 experts send no more than 8, unlike data parallelism; as measured."""
    few, many = ({name: by_row[f"0.3B/{e}E"] for name, by_row in m.extra["bytes"].items()} for e in (8, 32))
    for name, low, high in ((EXPERT_WISE, 0.0, 1.05), (ZERO, 2.0, 8.0)):
        yield exactly(f"{name}: bytes with 32 experts over those with 8", many[name] / few[name], low, high)
    yield exactly("expert-wise over data parallelism, 32 experts", many[EXPERT_WISE] / many[ZERO], high=1.0)
    for name, models in m.extra.get("sent", {}).items():
        for row in models:
            quantity = f"{name}, {row}: bytes sent by {RANKS} processes over the formula's"
            yield exactly(quantity, sent_over_formula(m, name, row)[0], 1 - WITHIN, 1 + WITHIN)


def sent_over_formula(m: Measured, parallelism: str, row: str) -> Values:
    """Bytes sent on this machine over those by the formula; empty if nothing was measured."""
    measured = at(m.extra, ("sent", parallelism, row))
    return {0: measured["sent"] / measured["formula"]} if measured else {}


def bytes_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """GB sent for every model, and the largest model's measurement."""
    gigabytes = {f"{model}, GB": {0: value} for model, value in m.extra["bytes"][row].items()}
    return {**gigabytes, "sent over formula, 32 experts": sent_over_formula(m, row, "0.3B/32E")}


def bytes_chart(m: Measured) -> Iterator[Chart]:
    """GB sent by parallelism, for each number of experts."""
    series = {
        name: {row: {0: value} for row, value in by_row.items()} for name, by_row in m.extra["bytes"].items()
    }
    yield dots(f"sent by each of {GPUS} ranks", "GB a step", series)


SENT_EXPERIMENT = Experiment(
    "lory-fig7",
    sent_by_experts,
    columns=bytes_columns,
    charts=bytes_chart,
    trains=False,
    compute=bytes_sent,
    note=f"bytes of the 0.3B models are counted by a formula, beside what {RANKS} processes of this machine "
    "send with small models; expert parallelism is that of a top-2 mixture, since merging needs every "
    "expert, and is counted by the formula alone",
)
