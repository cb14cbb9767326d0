"""All comparisons in turn: training steps, decoding, and the memory of a step."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from loriini.bench import models
from loriini.bench.models import BenchSize, bench_run, bench_size, run_config, weight_dtype
from loriini.bench.timing import Case, free, in_rounds, measured
from loriini.common.errors import is_out_of_memory
from loriini.common.hardware import describe_machine, keep_freed_memory, resolve_precision
from loriini.common.progress import progress, warn
from loriini.train.optimizer import OptimizerConfig

Row = dict[str, Any]
Result = TypeVar("Result")
COLUMNS = ("what", "design", "experts", "ratio", "baseline", "dtype", "median_s", "runs", "tokens_per_step")
"""The columns of a row that are printed."""
OPTIMIZERS = {"AdamW": OptimizerConfig(), "Muon": OptimizerConfig(name="muon")}


class Comparison(NamedTuple):
    """Cases that take turns with their baseline; one run of each processes so many `tokens`."""

    what: str
    baseline: Case
    cases: Sequence[Case]
    tokens: int


def measure(quick: bool = False, size: BenchSize | None = None) -> Iterator[list[Row]]:
    """Measure everything; yields all rows so far after every comparison.

    Every row has the columns of docs/speed.md and the machine; one that was timed also has `seconds` and
    `baseline_seconds` by round, one of memory `bytes` and `baseline_bytes` by part. A warning names each
    case that does not fit into memory.
    """
    keep_freed_memory()
    size = size or bench_size(quick)
    machine = {**describe_machine(), "date": time.strftime("%Y-%m-%d")}
    comparisons = [*train_steps(size), *muon_steps(size), *decoding(size)]
    rows: list[Row] = []
    with progress("bench", len(comparisons) + 1) as advance:
        for compared in comparisons:
            rows += [{**row, "machine": machine} for row in timed_rows(compared, size.rounds)]
            advance(1, f"{compared.what} relative to {compared.baseline.name}")
            yield rows
        rows += [{**row, "machine": machine} for row in memory_rows(size)]
        advance()
        yield rows


def train_steps(size: BenchSize) -> Iterator[Comparison]:
    """Steps of Lory and of the dense model of its active size; of top-2 and of transformers' Mixtral.

    Both mixtures of top-2 hold their weights in the dtype of computation: under autocast transformers'
    grouped products would stay in float32, a slow baseline.
    """
    dense, *lory = (
        Case(name, n, partial(models.build_steps, bench_run(size, name, n)))
        for name, n in [("dense", 1), *(("lory", n) for n in size.experts)]
    )
    yield Comparison("train_step", dense, lory, size.batch_size * size.length)
    sparse = replace(size, batch_size=size.micro_batch_size)
    for n in size.sparse_experts:
        run = replace(bench_run(sparse, "mixtral", n), precision="fp32")
        ours = Case("mixtral", n, partial(models.build_steps, run, weight_dtype()))
        theirs = Case("transformers MixtralForCausalLM", n, partial(models.build_mixtral_steps, run))
        yield Comparison("train_step", theirs, [ours], sparse.batch_size * size.length)


def muon_steps(size: BenchSize) -> Iterator[Comparison]:
    """Steps with Muon, of the dense model and of Lory with the fewest experts, and the same with AdamW."""
    for design, n in [("dense", 1), ("lory", size.experts[0])]:
        run = bench_run(size, design, n)
        adamw, muon = (
            Case(f"{design} with {name}", n, partial(models.build_steps, replace(run, optimizer=optimizer)))
            for name, optimizer in OPTIMIZERS.items()
        )
        yield Comparison("train_step", adamw, [muon], size.batch_size * size.length)


def decoding(size: BenchSize) -> Iterator[Comparison]:
    """Greedy tokens after prompts, of Lory and of a Llama of its active size."""
    for batch in size.decode_batches:
        name = f"transformers LlamaForCausalLM, batch {batch}"
        llama = decode_case(size, batch, name, "dense", 1, models.llama)
        lory = [decode_case(size, batch, "lory", "lory", n, models.on_device) for n in size.experts]
        yield Comparison("decode", llama, lory, batch * size.new_tokens)


def decode_case(
    size: BenchSize, batch: int, name: str, design: str, experts: int, make: Callable[..., nn.Module]
) -> Case:
    """Decoding with a model of a design's configuration; `make(configuration, dtype)` makes it."""
    made = partial(make, run_config(bench_run(size, design, experts)), weight_dtype())
    return Case(name, experts, partial(models.build_generation, size, batch, made))


def timed_rows(compared: Comparison, rounds: int) -> Iterator[Row]:
    """A row for each case that fits into memory; no rows if the baseline does not.

    Every case is measured once before the rounds that count, so that caches and clocks settle.
    """
    cases = [compared.baseline, *compared.cases]
    cases = [
        case
        for case in cases
        if if_it_fits(f"{case.name}, {case.experts} experts", partial(measured, case)) is not None
    ]
    if compared.baseline not in cases:
        return
    reference, *seconds = zip(*in_rounds(cases, rounds), strict=True)
    for case, own in zip(cases[1:], seconds, strict=True):
        ratio = median(theirs / ours for ours, theirs in zip(own, reference, strict=True))
        row = result(compared.what, case.name, case.experts, compared.baseline.name, ratio, compared.tokens)
        times = {"median_s": round(median(own), 6), "runs": rounds}
        yield {**row, **times, "seconds": own, "baseline_seconds": reference}


def memory_rows(size: BenchSize) -> Iterator[Row]:
    """The memory of Lory's steps relative to the dense model's, beyond weights, gradients and optimizer."""
    dense = if_it_fits("memory of dense", partial(models.step_bytes, bench_run(size, "dense", 1)))
    for name, recompute in (("lory", False), ("lory recompute_merge", True)):
        for n in size.experts:
            run = bench_run(size, "lory", n, recompute_merge=recompute)
            used = if_it_fits(f"memory of {name}, {n} experts", partial(models.step_bytes, run))
            if dense and used:
                ratio = used["activations"] / dense["activations"]
                row = result("memory", name, n, "dense", ratio, size.micro_batch_size * size.length)
                yield {**row, "bytes": used, "baseline_bytes": dense}


def if_it_fits(what: str, measure: Callable[[], Result]) -> Result | None:
    """What `measure` returns; None, with a warning, where the memory is too small."""
    try:
        return measure()
    except Exception as error:
        if not isinstance(error, torch.OutOfMemoryError) and not is_out_of_memory(error):
            raise
        warn(f"{what}: left out, since the memory is too small")
        return None
    finally:
        free()


def result(what: str, design: str, experts: int, baseline: str, ratio: float, tokens: int) -> Row:
    """The keys that every row has."""
    return {
        "what": what,
        "design": design,
        "experts": experts,
        "dtype": resolve_precision("auto"),
        "ratio": round(ratio, 4),
        "baseline": baseline,
        "median_s": None,
        "runs": 1,
        "tokens_per_step": tokens,
    }
