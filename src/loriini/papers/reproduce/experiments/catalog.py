"""The experiments by item, and the order in which `all` makes them."""

from dataclasses import replace

from loriini.common.checks import nearest
from loriini.common.errors import InputError
from loriini.papers.published.items import ITEMS
from loriini.papers.reproduce.experiments.aoe import AOE_EXPERIMENTS
from loriini.papers.reproduce.experiments.computed import COMPUTED_EXPERIMENTS
from loriini.papers.reproduce.experiments.design_choices import DESIGN_CHOICES_EXPERIMENTS
from loriini.papers.reproduce.experiments.experiment import Experiment
from loriini.papers.reproduce.experiments.likely_reasons import REASONS
from loriini.papers.reproduce.experiments.lory import LORY_EXPERIMENTS

ALL = "all"
EXPERIMENTS = {
    experiment.item: replace(experiment, reasons=REASONS.get(experiment.item, ()))
    for experiment in (
        *LORY_EXPERIMENTS,
        *DESIGN_CHOICES_EXPERIMENTS,
        *AOE_EXPERIMENTS,
        *COMPUTED_EXPERIMENTS,
    )
}
ITEM_ORDER = (  # the most informative per cost first
    "lory-table4",
    "lory-table5",
    "lory-fig7",
    "aoe-fig5",
    "lory-fig3",
    "lory-fig5",
    "lory-table2",
    "lory-fig6",
    "lory-fig11",
    "aoe-fig3",
    "aoe-fig4",
    "aoe-table1",
    "aoe-table6",
    "aoe-table7",
    "lory-fig4",
    "design-choices-table1",
    "design-choices-table3",
    "design-choices-fig2",
    "design-choices-assignment",
    "design-choices-token-assignment",
    "design-choices-random-assignment",
    "design-choices-table2",
    "aoe-fig2",
    "lory-fig2-left",
    "lory-fig2-right",
    "lory-table1",
    "lory-fig9",
    "lory-table6",
    "lory-table9",
    "lory-fig10",
    "design-choices-collapse",
    "design-choices-fig3",
    "design-choices-fig4",
    "design-choices-fig1",
    "aoe-table3",
    "aoe-table2",
    "lory-table7",
    "lory-table8",
    "lory-fig8",
    "aoe-table5",
    "lory-table3",
    "lory-appendix-b",
    "aoe-table4",
)


def find_experiments(names: tuple[str, ...]) -> list[Experiment]:
    """The experiments of some items, each once, or of `all`. InputError for an unknown name."""
    for name in names:
        if name not in EXPERIMENTS and name != ALL:
            raise InputError(
                f"{name}: no item of the papers; {nearest(name, ITEMS)}`loriini reproduce --list` lists all"
            )
    wanted = ITEM_ORDER if ALL in names else tuple(dict.fromkeys(names))
    return [EXPERIMENTS[name] for name in wanted]
