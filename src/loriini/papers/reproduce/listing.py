"""The list of all items: what each finds, what it costs, and whether it is done."""

from pathlib import Path
from typing import Any

from loriini.papers.published import ITEMS
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS
from loriini.papers.reproduce.plan import item_runs
from loriini.papers.reproduce.results import read_items
from loriini.papers.reproduce.scales import Scale, find_scale
from loriini.papers.reproduce.settings import ReproduceSettings
from loriini.train.config import TrainConfig


def describe_items(settings: ReproduceSettings, out: Path | None) -> list[dict[str, Any]]:
    """A row for each item: id, finding, trainings, the FLOPs of these, and state in `out`."""
    scale, seeds, rows = find_scale(settings.scale), settings.seeds, []
    measured = read_items(out) if out else {}
    for name, experiment in EXPERIMENTS.items():
        runs = {training.variant: training.run for training in item_runs(experiment, scale)}
        flops = sum(training_flops(run, scale) for run in runs.values())
        state = "not measured here"
        if found := measured.get(name):
            state = f"{found['verdict']} ({found['scale']}, seeds: {found['seeds']})"
        rows.append(
            {
                "item": name,
                "trainings": seeds * len(runs),
                "FLOPs": f"{seeds * flops:.1e}" if runs else "",
                "state": state,
                "finding": ITEMS[name].finding,
            }
        )
    return rows


def training_flops(run: TrainConfig, scale: Scale) -> float:
    """FLOPs of a training."""
    config = run.config(scale.vocabulary(run))
    return run.steps * run.batch_size * run.length * config.flops_per_token(run.length)
