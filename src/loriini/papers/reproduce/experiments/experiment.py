"""An experiment for each item: what is measured of its runs, the claims of its finding, and its charts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loriini.papers.published import ITEMS, PaperRun
from loriini.papers.reproduce.charts import Chart
from loriini.papers.reproduce.claim import Claim
from loriini.papers.reproduce.measured import Measured
from loriini.papers.reproduce.quantities import Values
from loriini.papers.reproduce.scales import Scale
from loriini.papers.reproduce.texts import KINDS


@dataclass(frozen=True)
class Experiment:
    """How an item is reproduced."""

    item: str
    claims: Callable[[Measured], Iterable[Claim]]
    measures: tuple[str, ...] = ()
    """Names in `measures`; what is recorded during training is always there."""
    columns: Callable[[Measured, str], Mapping[str, Values]] = lambda measured, row: {}
    """Measured quantities of a row by column: those of the published values, and others."""
    charts: Callable[[Measured], Iterable[Chart]] = lambda measured: ()
    more_runs: Mapping[str, PaperRun] = field(default_factory=dict)
    """Runs besides the item's own, which a claim compares with."""
    trains: bool = True
    """Whether the runs are trained; what `compute` gives alone needs none."""
    compute: Callable[[Scale, int], Mapping[str, Any]] | None = None
    """What is computed or measured without a training, given the scale and the number of seeds."""
    computed_as: str = ""
    """The item whose computation this is, where it is not its own: it is made once for both."""
    kind: str | None = None
    """Kind of text in place of the item's."""
    only_first_text: tuple[str, ...] = ()
    """Runs that are trained on the item's first text alone."""

    @property
    def runs(self) -> Mapping[str, PaperRun]:
        """The runs that are trained, by row."""
        return {**ITEMS[self.item].runs, **self.more_runs} if self.trains else {}

    @property
    def texts(self) -> Mapping[str, str]:
        """Names of the training texts → kinds of text."""
        return {name: self.kind or KINDS[name] for name in ITEMS[self.item].texts}
