"""What `--list` shows: every item with its finding, its trainings, their cost, and its state in a folder."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loriini.common.json_file import read_object
from loriini.papers.published import ITEMS, TRAINING, PaperRun
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS
from loriini.papers.reproduce.experiments.experiment import Experiment
from loriini.papers.reproduce.plan import item_runs
from loriini.papers.reproduce.results import DAMAGED, RESULTS
from loriini.papers.reproduce.scales import SCALES, Scale, paper_run, run_name, scaled_run
from loriini.recipes import default_vocabulary

GPUS_PER_NODE = 8


def describe_items(scale: Scale, seeds: int, out: Path | None) -> list[dict[str, Any]]:
    """A row for each item: id, finding, trainings, the FLOPs of these, and state in `out`."""
    rows = []
    for name, experiment in EXPERIMENTS.items():
        wanted = item_runs(experiment, scale)
        runs = {(run.name, each.kind): run for each in wanted for run in [scaled_run(each.paper, scale)]}
        flops = sum(
            run.steps
            * run.batch_size
            * run.length
            * run.config(default_vocabulary(run) if not scale.shapes else scale.vocab_size).flops_per_token(
                run.length
            )
            for run in runs.values()
        )
        rows.append(
            {
                "item": name,
                "trainings": seeds * len(runs),
                "FLOPs": f"{seeds * flops:.1e}" if runs else "",
                "state": state(name, out),
                "finding": ITEMS[name].finding,
            }
        )
    return rows


def state(name: str, out: Path | None) -> str:
    """The verdict of an item that is done in `out`."""
    path = None if out is None else out / name / RESULTS
    if path is None or not path.exists():
        return "new"
    results = read_object(path, DAMAGED)
    return f"{results['verdict']} ({results['scale']}, seeds: {results['seeds']})"


def paper_commands(experiment: Experiment, seeds: int) -> Iterator[str]:
    """The commands that train an item at the papers' scale; that of several nodes is run on each."""
    runs = {(run.text, run_name(run.paper)): run for run in item_runs(experiment, SCALES["paper"])}
    for run in runs.values():
        yield from (training_command(run.paper, run.text, seed) for seed in range(seeds))


def training_command(paper: PaperRun, text: str, seed: int) -> str:
    """The command of a training on the papers' GPUs; nodes meet at HOST."""
    run, gpus = paper_run(paper), TRAINING[paper.recipe.partition("-")[0]]["gpus"]
    nodes, slug = max(1, gpus // GPUS_PER_NODE), "-".join(re.findall(r"\w+", text))
    design = [f"--routing {paper.design}"] if paper.design else []
    if design and not run.warmup.dense_share:  # the recipe's own may have one, which the design cannot have
        design.append("--warmup.dense_share 0")
    return " ".join(
        [
            f"torchrun --nnodes {nodes} --nproc-per-node {min(GPUS_PER_NODE, gpus)}",
            *(["--rdzv-backend c10d --rdzv-endpoint HOST:29400"] if nodes > 1 else []),
            f"-m loriini train {paper.recipe}",
            *design,
            *paper.overrides,
            f"--seed {seed} --corpus CORPORA/{slug}-{run.order or 'random'}",
            f"--out runs/{slug}/{'-'.join([*run_name(paper).split(), f'seed{seed}'])}",
        ]
    )
