"""What to reproduce: settings, without heavy imports, which the command line reads as options."""

from dataclasses import dataclass
from typing import Annotated

from loriini.common.checks import Bounds, check_fields
from loriini.common.errors import InputError
from loriini.common.options import Option
from loriini.data.read.records import OnError


@dataclass(frozen=True)
class ReproduceSettings:
    """What to reproduce. InputError for a wrong setting."""

    items: Annotated[tuple[str, ...], Option("ITEM", positional=True)] = ()
    """Figures and tables, as `--list` names them, or all."""
    scale: str = "tiny"
    """tiny, small or paper."""
    text: tuple[str, ...] = ()
    """Documents to train on, as for `loriini quickstart --documents` (text found on this machine)."""
    seeds: Annotated[int, Bounds(least=1, most=100)] = 3
    """Trainings of each run."""
    jobs: int = 1
    """Trainings at once, which share the cores."""
    on_error: OnError = "stop"
    """What to do with a flawed record of `--text`."""

    def __post_init__(self) -> None:
        from loriini.compare.running import check_jobs
        from loriini.papers.reproduce.experiments.catalog import find_experiments
        from loriini.papers.reproduce.scales import find_scale

        find_experiments(self.items)
        find_scale(self.scale)
        check_fields(self, dashed=True)
        check_jobs(self.jobs)
        if self.items and self.scale == "paper" and not self.text:
            raise InputError("--scale paper needs --text: these models need more than the text of a machine")
