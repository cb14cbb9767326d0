"""The commands that compare designs, or existing runs: `compare`, and `quickstart` of two small models."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from loriini.cli.arguments import OutFolder
from loriini.cli.output import format_table, print_rows
from loriini.common.errors import InputError
from loriini.common.folders import RUN
from loriini.common.options import Option, refuse_given
from loriini.compare.settings import CompareSettings
from loriini.evaluate.settings import EvaluationSettings
from loriini.quickstart.settings import QuickstartSettings

if TYPE_CHECKING:
    from loriini.compare.trainings import Training

TRAINING_OPTIONS = ("recipe", "seeds", "grid", "ladder", "corpus", "jobs")
HELDOUT_OPTIONS = ("contexts", "skip", "instances", "on_error", "text_field", "domain_field")


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Train designs on the same text with several seeds and compare them, or compare existing runs.

    Any other `--dotted.name VALUE` changes that setting of every training, such as `--steps 2000` or
    `--optimizer.learning_rate 1e-3`; `loriini train RECIPE --help` lists all settings.
    """

    names: Annotated[tuple[str, ...], Option("DESIGN|RUN", positional=True)]
    """Designs to train (see `loriini designs`), or run folders; the others are compared with the first causal
    one."""
    out: OutFolder
    """Folder for runs and report."""
    heldout: tuple[str, ...] = ()
    """Held-out documents that every model is scored on."""
    training: Annotated[CompareSettings, Option(only=TRAINING_OPTIONS)] = field(
        default_factory=CompareSettings
    )
    dry_run: bool = False
    """Only list the trainings, their cost and what is done."""
    commands: bool = False
    """Train nothing here: print a command for each training that is not done, to run anywhere."""
    scored: Annotated[EvaluationSettings, Option(only=HELDOUT_OPTIONS)] = field(
        default_factory=EvaluationSettings
    )
    overrides: Annotated[tuple[str, ...], Option(rest=True)] = ()

    less_memory: ClassVar = "lower --jobs or --micro_batch_size, set --speed.activation_checkpointing true"
    resumes: ClassVar = True

    def run(self) -> None:
        from loriini.compare.grid import check_design
        from loriini.compare.job import compare_designs, compare_runs, describe_trainings, designs_to_train

        scored = replace(self.scored, documents=self.heldout)
        if runs := _runs(self.names):
            self._check_runs(runs)
            _print_summary(compare_runs(runs, scored if self.heldout else None, self.out), self.out)
            return
        for name in self.names:
            check_design(name)
        settings = replace(self.training, designs=self.names)
        if self.dry_run and self.commands:
            raise InputError("--commands: --dry-run makes no folders to train in; leave one of them out")
        if self.dry_run:
            rows = describe_trainings(settings, self.out)
            print_rows(rows, tuple(rows[0]), as_json=False)
            return
        if not self.heldout:
            raise InputError("--heldout is missing: give the documents that the models are scored on")
        if self.commands:
            print_commands(designs_to_train(settings, scored, self.out))
            return
        _print_summary(compare_designs(settings, scored, self.out), self.out)

    def _check_runs(self, runs: list[Path]) -> None:
        """InputError for designs among runs, training options, and held-out options without `--heldout`."""
        if others := [name for name in self.names if Path(name) not in runs]:
            raise InputError(f"{others[0]}: give designs or folders of runs, not both")
        trained = "these runs are trained already; leave it out"
        refuse_given(self, ("dry_run", "commands"), trained)
        refuse_given(self.training, TRAINING_OPTIONS, trained)
        for override in self.overrides:
            raise InputError(f"{override.partition('=')[0]}: {trained}")
        if not self.heldout:
            refuse_given(self.scored, HELDOUT_OPTIONS, "is for --heldout; give that too, or leave this out")


@dataclass(frozen=True, kw_only=True)
class Quickstart:
    """Train a dense model and a mixture on the same text and compare them."""

    out: OutFolder = Path("loriini-quickstart")
    """Output folder."""
    settings: QuickstartSettings = field(default_factory=QuickstartSettings)

    less_memory: ClassVar = "give a smaller --size"
    resumes: ClassVar = True

    def run(self) -> None:
        from loriini.quickstart.job import run_quickstart
        from loriini.reporting.wording import scored_tokens

        job = run_quickstart(self.settings, self.out)
        title = f"Perplexity of held-out text: {scored_tokens(job.results)}"
        table = format_table(job.columns, job.rows(), align_right=True)
        print(title, table, f"{job.verdict()}.", job.page, sep="\n", flush=True)


def _print_summary(results: Mapping[str, Any], out: Path) -> None:
    """Print a comparison's findings and, as the last line, the path of its report."""
    from loriini.common.progress import inform
    from loriini.compare.report import summary
    from loriini.reporting.page import REPORT

    found, rows, note = summary(results)
    table = [format_table(rows[0], rows[1:])] if rows[1:] else []
    print(found, *table, *filter(None, [note]), out / REPORT, sep="\n", flush=True)
    for remark in results["remarks"]:
        inform(f"note: {remark}")


def _runs(names: Iterable[str]) -> list[Path]:
    """The folders among the names. InputError for a name that is both a design's and a run's folder."""
    from loriini.routing import DESIGNS

    for name in names:
        if name in DESIGNS and (Path(name) / RUN).exists():
            raise InputError(f"{name}: a design, and a run's folder here; write ./{name} for the run")
    return [Path(name) for name in names if name not in DESIGNS and Path(name).is_dir()]


def print_commands(trainings: Iterable["Training"]) -> None:
    """Print the command of each training that is not done."""
    from loriini.compare.running import training_commands

    print(*(f"{command}\n" for command in training_commands(trainings)), sep="", end="")
