"""What `--list` shows: every item with its finding, its trainings, their cost, and its state in a folder."""

from pathlib import Path
from typing import Any

from loriini.common.json_file import read_object
from loriini.papers.published import ITEMS
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS
from loriini.papers.reproduce.plan import item_runs
from loriini.papers.reproduce.results import DAMAGED, RESULTS
from loriini.papers.reproduce.scales import Scale, scaled_run
from loriini.recipes import default_vocabulary
from loriini.train.config import TrainConfig


def describe_items(scale: Scale, seeds: int, out: Path | None) -> list[dict[str, Any]]:
    """A row for each item: id, finding, trainings, the FLOPs of these, and state in `out`."""
    rows = []
    for name, experiment in EXPERIMENTS.items():
        wanted = item_runs(experiment, scale)
        runs = {(run.name, each.kind): run for each in wanted for run in [scaled_run(each.paper, scale)]}
        flops = sum(map(training_flops, runs.values()))
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


def training_flops(run: TrainConfig) -> float:
    """FLOPs of a training."""
    config = run.config(run.model.vocab_size or default_vocabulary(run))
    return run.steps * run.batch_size * run.length * config.flops_per_token(run.length)


def state(name: str, out: Path | None) -> str:
    """The verdict of an item that is done in `out`."""
    path = None if out is None else out / name / RESULTS
    if path is None or not path.exists():
        return "not measured here"
    results = read_object(path, DAMAGED)
    return f"{results['verdict']} ({results['scale']}, seeds: {results['seeds']})"
