"""The experiments by item, in the order in which `all` makes them."""

from loriini.common.checks import nearest
from loriini.common.errors import InputError
from loriini.papers.published import ITEMS
from loriini.papers.reproduce.experiments.aoe import AOE_EXPERIMENTS
from loriini.papers.reproduce.experiments.computed import COMPUTED_EXPERIMENTS
from loriini.papers.reproduce.experiments.design_choices import DESIGN_CHOICES_EXPERIMENTS
from loriini.papers.reproduce.experiments.lory import LORY_EXPERIMENTS
from loriini.papers.reproduce.experiments.toy import TOY_EXPERIMENT
from loriini.papers.reproduce.plan import Experiment

ALL = "all"
EXPERIMENTS = {
    experiment.item: experiment
    for experiment in (
        *COMPUTED_EXPERIMENTS,
        TOY_EXPERIMENT,
        *LORY_EXPERIMENTS,
        *DESIGN_CHOICES_EXPERIMENTS,
        *AOE_EXPERIMENTS,
    )
}


def find_experiments(names: tuple[str, ...]) -> list[Experiment]:
    """The experiments of some items, each once, or of `all`. InputError for an unknown name."""
    for name in names:
        if name not in EXPERIMENTS and name != ALL:
            raise InputError(
                f"{name}: no item of the papers; {nearest(name, ITEMS)}`loriini reproduce --list` lists all"
            )
    wanted = EXPERIMENTS if ALL in names else dict.fromkeys(names)
    return [EXPERIMENTS[name] for name in wanted]
