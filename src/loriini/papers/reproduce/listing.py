"""What `--list` shows: every item with its finding, its trainings, their cost, and its state in a folder."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any

from loriini.common.hardware import PEAK_FLOPS
from loriini.common.json_file import read_object
from loriini.estimate.estimate import NODE, estimate
from loriini.estimate.memory import GIB, GpuCluster
from loriini.papers.published import TRAINING
from loriini.papers.published.items import ITEMS, PaperRun
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS, ITEM_ORDER
from loriini.papers.reproduce.experiments.experiment import Experiment
from loriini.papers.reproduce.plan import ItemRun, further_runs, item_runs
from loriini.papers.reproduce.results import DAMAGED, RESULTS
from loriini.papers.reproduce.scales import SCALES, Scale, paper_run, run_name, scaled_run
from loriini.recipes import default_vocabulary

STARTUP_SECONDS = 10.0
"""Seconds to start a training's process and to measure the run."""
SECONDS_PER_LAYER = 0.006
"""CPU seconds per layer of a training step whose matrices are negligible, on a server's core."""
SHARE_OF_EXPERT = 0.05
"""The fraction of SECONDS_PER_LAYER that each expert adds."""
CPU_FLOPS = 6e10
"""FLOPs per second of one core on matrices of the scales' sizes."""
COMPUTED_MINUTES = 3.0
"""Core-minutes of what an item computes without a training."""
TIMED_MINUTES = 16.0
"""Core-minutes of the timings of an item: some 8 minutes on two cores."""
PEAK, USE = PEAK_FLOPS["A100"], 0.4
"""FLOPs per second of the papers' A100, and the share of it that training reaches."""


def core_minutes(experiment: Experiment, scale: Scale, seeds: int) -> float:
    """An estimate of an item's cost on cores, if none of its runs is there yet."""
    runs = distinct_runs(item_runs(experiment, scale), scale)
    seconds = sum(run_seconds(paper, scale) for paper in runs)
    other = TIMED_MINUTES if experiment.timed else COMPUTED_MINUTES if experiment.compute else 0
    return seeds * seconds / 60 + other


def describe_reasons(scale: Scale, seeds: int) -> str:
    """What `--reasons` trains besides all items, if no finding holds."""
    further = (further_runs(experiment, scale) for experiment in EXPERIMENTS.values())
    runs = distinct_runs(chain.from_iterable(further), scale)
    minutes = seeds * sum(run_seconds(paper, scale) for paper in runs) / 60
    return (
        f"--reasons adds at most {seeds * len(runs)} trainings, {ceil(minutes)} core-minutes: those of "
        "items whose findings do not hold or are undecided"
    )


def distinct_runs(runs: Iterable[ItemRun], scale: Scale) -> list[PaperRun]:
    """Runs of items, each once for a kind of text: rows and items may share trainings."""
    return list({(scaled_run(run.paper, scale).name, run.kind): run.paper for run in runs}.values())


def run_seconds(paper: PaperRun, scale: Scale) -> float:
    """Seconds of one training on one core."""
    run = scaled_run(paper, scale)
    config = run.config(scale.vocab_size)
    flops = config.flops_per_token(run.length) * run.batch_size * run.length + 30 * config.parameters()[0]
    busy = run.model.num_hidden_layers * (1 + SHARE_OF_EXPERT * run.model.num_experts)
    return STARTUP_SECONDS + run.steps * (flops / CPU_FLOPS + SECONDS_PER_LAYER * busy)


def describe_items(scale: Scale, seeds: int, out: Path | None) -> list[dict[str, Any]]:
    """A row for each item: id, finding, trainings, cost at the scale, and state in `out`."""
    return [
        {
            "item": name,
            "finding": ITEMS[name].finding,
            "trainings": seeds * len(distinct_runs(item_runs(EXPERIMENTS[name], scale), scale)),
            "cost": cost(EXPERIMENTS[name], scale, seeds),
            "state": state(name, scale, out),
        }
        for name in ITEM_ORDER
    ]


def cost(experiment: Experiment, scale: Scale, seeds: int) -> str:
    """Core-minutes, or GPU-hours at the papers' scale."""
    if scale.shapes:
        return f"{ceil(core_minutes(experiment, scale, seeds))} core-minutes"
    hours = sum(gpu_hours(paper) for _, paper in paper_runs(experiment))
    return f"{seeds * hours:,.0f} GPU-hours"


def state(name: str, scale: Scale, out: Path | None) -> str:
    """The verdict of an item that is done in `out`."""
    path = None if out is None else out / name / RESULTS
    if path is None or not path.exists():
        return "new"
    results = read_object(path, DAMAGED)
    seeds = results["seeds"]
    return f"{results['verdict']} ({results['scale']}, {seeds} seed{'s' * (seeds != 1)})"


def gpu_hours(paper: PaperRun) -> float:
    """GPU-hours of a paper's run at 40 % of an A100's peak."""
    run = paper_run(paper)
    tokens = run.steps * run.batch_size * run.length
    flops = run.config(default_vocabulary(run)).flops_per_token(run.length)
    return tokens * flops / (USE * PEAK) / 3600


def paper_commands(experiment: Experiment, seeds: int) -> Iterator[str]:
    """The commands of an item at the papers' scale: trainings after lines with estimates, and evaluations."""
    for text, paper in paper_runs(experiment):
        published = TRAINING[paper.recipe.partition("-")[0]]
        yield described(paper, text, published.gpus, published.gpu_memory)
        for seed in range(seeds):
            yield training_command(paper, text, seed, published.gpus)
    yield from evaluation_commands(experiment, seeds)


def paper_runs(experiment: Experiment) -> list[tuple[str, PaperRun]]:
    """An item's trainings at the papers' scale, each once, with their texts."""
    runs = {
        (run.text, run_name(run.paper)): (run.text, run.paper)
        for run in item_runs(experiment, SCALES["paper"])
    }
    return list(runs.values())


def described(paper: PaperRun, text: str, gpus: int, gpu_memory: float) -> str:
    """A comment: what a training takes on the papers' GPUs."""
    run = paper_run(paper)
    estimated = estimate(run, default_vocabulary(run), GpuCluster(gpus, gpu_memory * GIB))
    memory = estimated.options[0].memory.total / GIB
    received = estimated.communication["fsdp"]
    parts = [
        f"{gpus} GPU{'s' if gpus > 1 else ''}",
        f"{gpu_hours(paper) / gpus:,.0f} hours at {USE:.0%} of an A100's peak",
        f"{memory:.0f} GiB each",
        *([f"{received.total / 1e9:.0f} GB received in a step"] if received and received.total else []),
    ]
    return f"# {run_name(paper)} on {text}: {', '.join(parts)}"


def training_command(paper: PaperRun, text: str, seed: int, gpus: int) -> str:
    """The command of a training; that of several nodes is run on each, which meet at HOST."""
    nodes = max(1, gpus // NODE)
    meeting = ["--rdzv-backend c10d --rdzv-endpoint HOST:29400"] if nodes > 1 else []
    run = paper_run(paper)
    design = [f"--routing {paper.design}"] if paper.design else []
    if design and not run.warmup.dense_share:  # the recipe's own may have one, which the design cannot have
        design.append("--warmup.dense_share 0")
    parts = [
        f"torchrun --nnodes {nodes} --nproc-per-node {min(NODE, gpus)}",
        *meeting,
        f"-m loriini train {paper.recipe}",
        *design,
        *paper.overrides,
        f"--seed {seed} --corpus CORPORA/{slug(text)}-{run.order or 'random'}",
        f"--out {run_folder(paper, text, seed)}",
    ]
    return " ".join(parts)


def slug(text: str) -> str:
    """A text's name as a part of a path."""
    return "-".join(re.findall(r"\w+", text))


def run_folder(paper: PaperRun, text: str, seed: int) -> str:
    """Where the commands put a run."""
    return f"runs/{slug(text)}/" + "-".join([*run_name(paper).split(), f"seed{seed}"])


def evaluation_commands(experiment: Experiment, seeds: int) -> Iterator[str]:
    """The commands that evaluate an item's runs on tasks or held-out text, each for all runs it fits."""
    by_options: dict[tuple[str, tuple[str, ...]], list[PaperRun]] = defaultdict(list)
    for _, text, _, paper in item_runs(experiment, SCALES["paper"]):
        default = experiment.published.evaluate or ("--documents", f"HELDOUT/{slug(text)}") * (
            "heldout" in experiment.measures
        )
        by_options[text, paper.evaluate or default].append(paper)
    for (text, options), papers in by_options.items():
        for seed in range(seeds if options else 0):
            runs = dict.fromkeys(run_folder(paper, text, seed) for paper in papers)
            name = "-".join([experiment.item, slug(text), *options[3::2], f"seed{seed}"]).replace(":", "-")
            yield f"loriini evaluate {' '.join(runs)} {' '.join(options)} --out {name}.json"
