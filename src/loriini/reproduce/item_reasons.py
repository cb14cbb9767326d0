"""Likely reasons by item, for the findings that small models and little text can turn over."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from loriini.published.items import ITEMS, PaperRun
from loriini.published.items.design_choices import SEQUENCE_TOP2
from loriini.reproduce import common as c
from loriini.reproduce import design_choices_experiments as choices
from loriini.reproduce import lory_experts as experts
from loriini.reproduce.aoe_experiments import at_node
from loriini.reproduce.assignment import agreement
from loriini.reproduce.claims import Claim, Values, above, below, difference, extreme
from loriini.reproduce.measured import Measured
from loriini.reproduce.reasons import (
    FurtherRun,
    Reason,
    ValuesOf,
    in_twice_the_steps,
    other_setting,
    too_few_steps,
    twice,
    untuned_rate,
)

heldout: ValuesOf = Measured.loss
training: ValuesOf = Measured.training_loss
Runs = Mapping[str, PaperRun]
"""An item's runs, by row."""
ReasonOf = Callable[[Runs], Reason]
WEAK_DECAY = "--optimizer.weight_decay=0.1"
TOKEN, WIDE = "token, layer-wise, top-2", "dense, 4x FFN width"
MOE, AOE = "2 MoE + aux", "10 AoE 256 + aux"
topic_agreement = partial(agreement, measure="topics")


def answers(m: Measured, row: str) -> Values:
    """The negative log-likelihood of the right answers."""
    return c.scaled(c.likelihood_of(m, row), -1)


def steps(better: str, worse: str, values_of: ValuesOf) -> ReasonOf:
    """Too few steps for a lead that the item's finding is about."""
    return lambda runs: too_few_steps(runs, better, worse, values_of)


def rates(better: str, worse: str, values_of: ValuesOf) -> ReasonOf:
    """One learning rate for both."""
    return lambda runs: untuned_rate(runs, better, worse, values_of)


def grows(row: str, what: str, values_of: ValuesOf) -> ReasonOf:
    """That a quantity of a row still grows: twice the steps make it larger."""

    def claims(m: Measured) -> Iterator[Claim]:
        quantity = f"{what} in twice the steps minus that in these"
        yield above(quantity, values_of(m, twice(row)), values_of(m, row), unit="")

    return lambda runs: in_twice_the_steps(f"{what}: still growing", runs, [row], claims)


def last_layer(m: Measured, row: str) -> Values:
    """Agreement of experts and domain in the last layer."""
    return c.layer_values(experts.agreement(m, row), -1)


def in_use_late(m: Measured, row: str) -> Values:
    """Share of active experts in the last third of training."""
    return experts.active_share(m, row, experts.LATE)


def longer_warmup(runs: Runs) -> Reason:
    """A dense warm-up of a fifth of the steps instead of a twentieth."""
    name = "1.5B/32E, warm-up of 20 %"

    def claims(m: Measured) -> Iterator[Claim]:
        without = m.training_loss("1.5B/32E (no warmup)")
        yield below("training loss with that warm-up less without one", m.training_loss(name), without)

    run = FurtherRun.of(runs["1.5B/32E"], "--warmup.dense_share=0.2")
    return Reason("a warm-up of 5 % of the steps is too short", {name: run}, claims)


def weaker_decay(runs: Runs) -> Reason:
    """A fifth of the weight decay."""
    name = "a weight decay of 0.5 is for many more steps"
    return other_setting(name, WEAK_DECAY, runs, TOKEN, WIDE, heldout)


def stronger_balancing(runs: Runs) -> Reason:
    """Ten times the weight of the load-balancing loss."""
    row, paper = next(iter(runs.items()))
    name = f"{row}, balancing weight 0.1"

    def claims(m: Measured) -> Iterator[Claim]:
        yield Claim("share of collapsed experts with that weight", choices.collapsed(m, name), 0.0, 0.0)
        low = choices.UNUSED
        yield Claim("smallest load relative to the even share", choices.least_load(m, name), low=low)

    run = FurtherRun.of(paper, "--routing.load_balance=0.1")
    return Reason("the balancing loss's weight of 0.01 is too small here", {name: run}, claims)


def better_mixture(runs: Runs, norm: str) -> Reason:
    """A mixture trained longer loses less without its routers."""

    def lost(m: Measured, row: str) -> Values:
        nodes = [name for name in runs if name != "router"]
        best = extreme([m.loss(row, measure=at_node(node, norm)) for node in nodes], min)
        return difference(best, m.loss(row, measure=at_node("router", norm)))

    def claims(m: Measured) -> Iterator[Claim]:
        quantity = "loss at the best node less with routers, in twice the steps less in these"
        yield below(quantity, lost(m, twice("router")), lost(m, "router"))

    return in_twice_the_steps("loss added without routers: still falling", runs, ["router"], claims)


REASONS_OF: dict[str, tuple[ReasonOf, ...]] = {
    "lory-fig2-left": (steps("0.3B/8E", "0.3B", training), rates("0.3B/8E", "0.3B", training)),
    "lory-fig2-right": (steps("0.3B/8E", "0.3B", heldout), rates("0.3B/8E", "0.3B", heldout)),
    "lory-table1": (steps("0.3B/8E", "0.3B", answers),),
    "lory-fig3": (steps("causal segment routing", "prefix routing", training),),
    "lory-fig4": (steps("0.3B/8E (sim batch)", "0.3B (sim batch)", training),),
    "lory-fig5": (steps("Lory", "EC, segment-level", training),),
    "lory-table2": (steps("0.3B/8E (Lory)", "0.3B/8E (EC, seg-level)", heldout),),
    **dict.fromkeys(
        ("lory-fig6", "lory-fig11"),
        (grows("0.3B/8E", "agreement of experts and domain in the last layer", last_layer),),
    ),
    "lory-table7": (steps("7B/4E", "7B", heldout),),
    "lory-table8": (steps("7B/4E", "7B", answers),),
    "lory-fig8": (steps("7B/4E", "7B", training),),
    "lory-fig9": (grows("1.5B/32E", "share of 32 experts in use at the end", in_use_late),),
    "lory-fig10": (longer_warmup,),
    "design-choices-table1": (weaker_decay, steps(TOKEN, WIDE, heldout)),
    "design-choices-table2": (steps("token (6, 2)", "token (4, 2)", heldout),),
    "design-choices-table3": (
        steps("sequence, layer-wise, learned", "sequence, layer-wise, random", heldout),
    ),
    "design-choices-collapse": (grows("no balancing", "share of collapsed experts", choices.collapsed),),
    "design-choices-fig2": (grows(SEQUENCE_TOP2, "share of collapsed experts", choices.collapsed),),
    **dict.fromkeys(("design-choices-fig3", "design-choices-fig4"), (stronger_balancing,)),
    "design-choices-assignment": (grows(SEQUENCE_TOP2, "agreement of experts and topic", topic_agreement),),
    "design-choices-random-assignment": (
        grows("learned", "agreement of experts and topic", topic_agreement),
    ),
    "aoe-table1": (partial(better_mixture, norm="2"),),
    "aoe-table6": (partial(better_mixture, norm="1"),),
    "aoe-table7": (partial(better_mixture, norm="inf"),),
    "aoe-fig2": (steps(AOE, MOE, training), rates(AOE, MOE, training)),
    "aoe-table2": (steps(AOE, MOE, heldout), rates(AOE, MOE, heldout)),
    "aoe-table3": (steps("top-p, AoE", "top-p, MoE", heldout),),
    "aoe-table5": (steps("AoE", "MoE", heldout),),
}
"""By item, the most likely first."""
REASONS = {item: tuple(of(ITEMS[item].runs) for of in reasons) for item, reasons in REASONS_OF.items()}
