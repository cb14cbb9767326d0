"""The command that reproduces the papers' figures and tables; it joins by the entry points of the package."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from loriini.cli.arguments import OutFolder
from loriini.cli.compare import print_commands
from loriini.cli.output import print_rows
from loriini.common.errors import InputError
from loriini.common.json_file import read_object
from loriini.common.options import refuse_given
from loriini.papers.published import ITEMS
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS
from loriini.papers.reproduce.job import ReproduceSettings, place_items, reproduce_items
from loriini.papers.reproduce.plan import distinct_trainings, item_runs
from loriini.papers.reproduce.results import DAMAGED, RESULTS
from loriini.papers.reproduce.scales import Scale, find_scale, scaled_run
from loriini.recipes import default_vocabulary
from loriini.train.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Reproduce figures and tables of the four papers: train, measure, plot, and say which findings hold."""

    settings: ReproduceSettings = field(default_factory=ReproduceSettings)
    out: OutFolder | None = None
    """Folder for runs, results and reports."""
    list: bool = False
    """List every item with its finding, FLOPs and state."""
    commands: bool = False
    """Train nothing here: print a command for each training that is not done, to run anywhere."""
    json: bool = False
    """With `--list`: as JSON."""

    less_memory: ClassVar = "lower --jobs, or give a smaller --scale"
    resumes: ClassVar = True

    def run(self) -> None:
        wanted = self.settings
        self._refuse_unused()
        if self.list:
            rows = describe_items(find_scale(wanted.scale), wanted.seeds, self.out)
            print_rows(rows, tuple(rows[0]), as_json=self.json)
            return
        if self.out is None:
            raise InputError("--out is missing: give the folder of runs and results")
        if not wanted.items:
            raise InputError("give the items to reproduce, or all; `loriini reproduce --list` lists them")
        if self.commands:
            print_commands(distinct_trainings(place_items(wanted, self.out)[0]))
        else:
            print(reproduce_items(wanted, self.out))

    def _refuse_unused(self) -> None:
        """InputError for arguments that would have no effect."""
        training_options = ("items", "text", "on_error", "jobs", "commands")
        for unused, names, why in (
            (self.list, training_options, "--list trains nothing"),
            (not self.list, ("json",), "is only for --list"),
            (not self.settings.text, ("on_error",), "is only for --text"),
        ):
            for settings in (self.settings, self) if unused else ():
                refuse_given(settings, names, f"{why}; leave this out")


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
    if out is None or not (path := out / name / RESULTS).exists():
        return "not measured here"
    results = read_object(path, DAMAGED)
    return f"{results['verdict']} ({results['scale']}, seeds: {results['seeds']})"
