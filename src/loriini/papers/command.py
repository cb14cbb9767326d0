"""The command that reproduces the papers' figures and tables, registered by an entry point of the package."""

from dataclasses import dataclass, field
from typing import ClassVar

from loriini.cli.arguments import OutFolder
from loriini.cli.compare import print_commands
from loriini.cli.output import print_rows
from loriini.common.errors import InputError
from loriini.common.options import refuse_given
from loriini.papers.reproduce.settings import ReproduceSettings


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
            from loriini.papers.reproduce.listing import describe_items

            rows = describe_items(wanted, self.out)
            print_rows(rows, tuple(rows[0]), as_json=self.json)
            return
        if self.out is None:
            raise InputError("--out is missing: give the folder of runs and results")
        if not wanted.items:
            raise InputError("give the items to reproduce, or all; `loriini reproduce --list` lists them")
        from loriini.papers.reproduce.job import place_items, reproduce_items
        from loriini.papers.reproduce.plan import distinct_trainings

        if self.commands:
            print_commands(distinct_trainings(place_items(wanted, self.out)[0].values()))
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
