"""Likely reasons by item, for the findings that small models and little text can turn over."""

from collections.abc import Callable, Mapping

from loriini.published.items import ITEMS, PaperRun
from loriini.published.items.aoe import NODES
from loriini.published.items.design_choices import SEQUENCE_TOP2
from loriini.reproduce.claims.reasons import Reason, other_setting, too_few_steps, untuned_rate
from loriini.reproduce.experiments.aoe import AOE, MOE
from loriini.reproduce.experiments.lory import FROM_SCRATCH

Runs = Mapping[str, PaperRun]
"""An item's runs, by row."""
ReasonOf = Callable[[Runs], Reason]
TOP_1 = ("token, layer-wise, top-1", "sequence, layer-wise, top-1", "dense, 1x FFN width")


def steps(*rows: str) -> ReasonOf:
    """Too few steps for what the finding says of rows; of all rows without any."""
    return lambda runs: too_few_steps(runs, *(rows or runs))


def rates(*rows: str) -> ReasonOf:
    """One learning rate for all."""
    return lambda runs: untuned_rate(runs, *rows)


def weaker_decay(runs: Runs) -> Reason:
    """A fifth of the weight decay."""
    name = "a weight decay of 0.5 is for many more steps"
    return other_setting(runs, name, "--optimizer.weight_decay=0.1", *TOP_1)


def longer_warmup(runs: Runs) -> Reason:
    """A dense warm-up of a fifth of the steps instead of a twentieth."""
    name = "a warm-up of 5 % of the steps is too short"
    warm, without = "1.5B/32E", "1.5B/32E (no warmup)"
    return other_setting(runs, name, "--warmup.dense_share=0.2", warm, beside=[without])


def no_warmup(lory: str, *beside: str) -> ReasonOf:
    """Lory as a mixture from the first step, like what it is compared with; a row of the item itself."""
    name = "Lory has a dense warm-up, and Expert Choice has none"
    instead = {lory: (FROM_SCRATCH,), **{row: (row,) for row in beside}}
    return lambda runs: Reason(name, "both without a warm-up", instead, {})


def stronger_balancing(runs: Runs) -> Reason:
    """Ten times the weight of the load-balancing loss."""
    name = "the balancing loss's weight of 0.01 is too small here"
    return other_setting(runs, name, "--routing.load_balance=0.1", *runs)


REASONS_OF: dict[str, tuple[ReasonOf, ...]] = {
    "lory-fig2-left": (steps("0.3B", "0.3B/32E"),),
    "lory-fig2-right": (steps("0.3B", "0.3B/32E"),),
    "lory-table1": (steps("0.3B", "0.3B/8E", "0.3B/32E"),),
    "lory-fig3": (steps("causal segment routing", "prefix routing"),),
    "lory-fig4": (steps(),),
    "lory-fig5": (no_warmup("Lory", "EC, segment-level", "EC, token-level"), steps()),
    "lory-table2": (
        no_warmup("0.3B/8E (Lory)", "0.3B/8E (EC, seg-level)", "0.3B/8E (EC, tok-level)"),
        steps("0.3B/8E (Lory)", "0.3B/8E (EC, tok-level)"),
    ),
    **dict.fromkeys(("lory-fig6", "lory-fig11"), (steps("0.3B/8E"),)),
    **dict.fromkeys(("lory-table7", "lory-table8", "lory-fig8"), (steps("7B", "7B/4E"),)),
    "lory-fig9": (steps("1.5B/32E"),),
    "lory-fig10": (longer_warmup,),
    "design-choices-table1": (weaker_decay, steps(*TOP_1, SEQUENCE_TOP2, "dense, 2x FFN width")),
    "design-choices-table2": (steps("token (2, 2)", "token (4, 2)", "token (6, 2)"),),
    "design-choices-table3": (steps("sequence, global, language", "sequence, global, learned"),),
    "design-choices-collapse": (steps(),),
    **dict.fromkeys(("design-choices-fig2", "design-choices-assignment"), (steps(SEQUENCE_TOP2),)),
    **dict.fromkeys(("design-choices-fig3", "design-choices-fig4"), (stronger_balancing,)),
    "design-choices-token-assignment": (steps(),),
    "design-choices-random-assignment": (steps("learned"),),
    "design-choices-fig1": (steps(),),
    **dict.fromkeys(("aoe-table1", "aoe-table6", "aoe-table7"), (steps(*NODES, "router"),)),
    "aoe-fig2": (steps(MOE, AOE), rates(MOE, AOE)),
    "aoe-fig3": (steps(AOE),),
    "aoe-fig4": (steps("9 AoE 256"),),
    "aoe-table2": (steps(MOE, AOE), rates(MOE, AOE)),
    "aoe-table3": (steps("top-p, MoE", "top-p, AoE"),),
    "aoe-table5": (steps(),),
}
"""By item, the most likely first."""
REASONS = {item: tuple(of(ITEMS[item].runs) for of in reasons) for item, reasons in REASONS_OF.items()}
