"""Likely reasons by item, for the findings that small models and little text can turn over."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from loriini.papers.published.items import ITEMS, PaperRun
from loriini.papers.published.items.aoe import NODES
from loriini.papers.published.items.design_choices import SEQUENCE_TOP2
from loriini.papers.reproduce.claims.reasons import Reason
from loriini.papers.reproduce.experiments.aoe import AOE, MOE
from loriini.papers.reproduce.experiments.lory import FROM_SCRATCH

Runs = Mapping[str, PaperRun]
"""An item's runs, by row."""
ReasonOf = Callable[[Runs], Reason]
RATES = (0.5, 2.0)
"""Multiples of the scale's learning rate that are tried in addition."""
TOP_1 = ("token, layer-wise, top-1", "sequence, layer-wise, top-1", "dense, 1x FFN width")


def twice(row: str) -> str:
    """The name of a row that is trained for twice the steps."""
    return f"{row}, twice the steps"


def too_few_steps(*rows: str) -> ReasonOf:
    """That the finding holds where rows are trained for twice the steps; all rows without any."""
    return lambda runs: Reason(
        "too few training steps",
        "in twice the steps",
        {row: (twice(row),) for row in rows or runs},
        {twice(row): replace(runs[row], steps=2.0) for row in rows or runs},
    )


def untuned_rate(*rows: str) -> ReasonOf:
    """That the finding holds where each of some rows has the best of three learning rates."""
    rates = {row: {f"{row}, {rate:g} times the learning rate": rate for rate in RATES} for row in rows}
    return lambda runs: Reason(
        "one learning rate does not suit all",
        f"each at the best of {1 + len(RATES)} learning rates",
        {row: (row, *rates[row]) for row in rows},
        {name: replace(runs[row], learning_rate=rate) for row in rows for name, rate in rates[row].items()},
    )


def other_setting(name: str, override: str, *rows: str, beside: Sequence[str] = ()) -> ReasonOf:
    """That the finding holds where rows have another setting, all rows without any, `beside` others."""
    how = override.removeprefix("--")
    return lambda runs: Reason(
        name,
        f"with {how}",
        {**{row: (f"{row}, {how}",) for row in rows or runs}, **{row: (row,) for row in beside}},
        {
            f"{row}, {how}": replace(runs[row], overrides=(*runs[row].overrides, override))
            for row in rows or runs
        },
    )


def no_warmup(lory: str, *beside: str) -> ReasonOf:
    """Lory as a mixture from the first step, like what it is compared with; a row of the item itself."""
    name = "Lory has a dense warm-up, and Expert Choice has none"
    instead = {lory: (FROM_SCRATCH,), **{row: (row,) for row in beside}}
    return lambda runs: Reason(name, "both without a warm-up", instead, {})


WEAKER_DECAY = other_setting(
    "a weight decay of 0.5 is for many more steps", "--optimizer.weight_decay=0.1", *TOP_1
)
LONGER_WARMUP = other_setting(
    "a warm-up of 5 % of the steps is too short",
    "--warmup.dense_share=0.2",
    "1.5B/32E",
    beside=["1.5B/32E (no warmup)"],
)
STRONGER_BALANCING = other_setting(
    "the balancing loss's weight of 0.01 is too small here", "--routing.load_balance=0.1"
)
REASONS_OF: dict[str, tuple[ReasonOf, ...]] = {
    "lory-fig2-left": (too_few_steps("0.3B", "0.3B/32E"),),
    "lory-fig2-right": (too_few_steps("0.3B", "0.3B/32E"),),
    "lory-table1": (too_few_steps("0.3B", "0.3B/8E", "0.3B/32E"),),
    "lory-fig3": (too_few_steps("causal segment routing", "prefix routing"),),
    "lory-fig4": (too_few_steps(),),
    "lory-fig5": (no_warmup("Lory", "EC, segment-level", "EC, token-level"), too_few_steps()),
    "lory-table2": (
        no_warmup("0.3B/8E (Lory)", "0.3B/8E (EC, seg-level)", "0.3B/8E (EC, tok-level)"),
        too_few_steps("0.3B/8E (Lory)", "0.3B/8E (EC, tok-level)"),
    ),
    **dict.fromkeys(("lory-fig6", "lory-fig11"), (too_few_steps("0.3B/8E"),)),
    **dict.fromkeys(("lory-table7", "lory-table8", "lory-fig8"), (too_few_steps("7B", "7B/4E"),)),
    "lory-fig9": (too_few_steps("1.5B/32E"),),
    "lory-fig10": (LONGER_WARMUP,),
    "design-choices-table1": (WEAKER_DECAY, too_few_steps(*TOP_1, SEQUENCE_TOP2, "dense, 2x FFN width")),
    "design-choices-table2": (too_few_steps("token (2, 2)", "token (4, 2)", "token (6, 2)"),),
    "design-choices-table3": (too_few_steps("sequence, global, language", "sequence, global, learned"),),
    "design-choices-collapse": (too_few_steps(),),
    **dict.fromkeys(("design-choices-fig2", "design-choices-assignment"), (too_few_steps(SEQUENCE_TOP2),)),
    **dict.fromkeys(("design-choices-fig3", "design-choices-fig4"), (STRONGER_BALANCING,)),
    "design-choices-token-assignment": (too_few_steps(),),
    "design-choices-random-assignment": (too_few_steps("learned"),),
    "design-choices-fig1": (too_few_steps(),),
    **dict.fromkeys(("aoe-table1", "aoe-table6", "aoe-table7"), (too_few_steps(*NODES, "router"),)),
    "aoe-fig2": (too_few_steps(MOE, AOE), untuned_rate(MOE, AOE)),
    "aoe-fig3": (too_few_steps(AOE),),
    "aoe-fig4": (too_few_steps("9 AoE 256"),),
    "aoe-table2": (too_few_steps(MOE, AOE), untuned_rate(MOE, AOE)),
    "aoe-table3": (too_few_steps("top-p, MoE", "top-p, AoE"),),
    "aoe-table5": (too_few_steps(),),
}
"""By item, the most likely first."""
REASONS = {item: tuple(of(ITEMS[item].runs) for of in reasons) for item, reasons in REASONS_OF.items()}
