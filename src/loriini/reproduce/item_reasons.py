"""Likely reasons by item, for the findings that small models and little text can turn over."""

from collections.abc import Iterator
from functools import partial

from loriini.published.items import ITEMS
from loriini.reproduce import common as c
from loriini.reproduce import design_choices_rows as choices
from loriini.reproduce import lory_experts as experts
from loriini.reproduce.aoe_rows import router_free_name
from loriini.reproduce.claims import Claim, Values, above, below, difference, extreme
from loriini.reproduce.measured import Measured
from loriini.reproduce.reasons import (
    FurtherRun,
    Quantity,
    Reason,
    in_twice_the_steps,
    other_setting,
    too_few_steps,
    twice,
    untuned_rate,
)

heldout: Quantity = Measured.loss
training: Quantity = Measured.training_loss
WEAK_DECAY = "--optimizer.weight_decay=0.1"


def answers(m: Measured, row: str) -> Values:
    """The negative log-likelihood of the right answers."""
    return c.scaled(c.likelihood_of(m, row), -1)


def steps(item: str, better: str, worse: str, of: Quantity) -> Reason:
    """Too few steps for a lead that the item's finding is about."""
    return too_few_steps(ITEMS[item].runs, better, worse, of)


def rates(item: str, better: str, worse: str, of: Quantity) -> Reason:
    """One learning rate for both."""
    return untuned_rate(ITEMS[item].runs, better, worse, of)


def grows(item: str, row: str, what: str, of: Quantity) -> Reason:
    """That a quantity of a row still grows: twice the steps make it larger."""

    def claims(m: Measured) -> Iterator[Claim]:
        says = f"{what} in twice the steps less that in these"
        yield above(says, of(m, twice(row)), of(m, row), unit="")

    return in_twice_the_steps(f"{what}: still growing", ITEMS[item].runs, [row], claims)


def last_layer(m: Measured, row: str) -> Values:
    """Agreement of experts and domain in the last layer."""
    return c.layer_values(experts.agreement(m, row), -1)


def in_use_late(m: Measured, row: str) -> Values:
    """Share of active experts in the last third of training."""
    return experts.active_share(m, row, experts.LATE)


def longer_warmup() -> Reason:
    """A dense warm-up of a fifth of the steps instead of a twentieth."""
    name = "1.5B/32E, warm-up of 20 %"
    paper = ITEMS["lory-fig10"].runs["1.5B/32E"]

    def claims(m: Measured) -> Iterator[Claim]:
        without = m.training_loss("1.5B/32E (no warmup)")
        yield below("training loss with that warm-up less without one", m.training_loss(name), without)

    run = FurtherRun.of(paper, "--warmup.dense_share=0.2")
    return Reason("a warm-up of 5 % of the steps is too short", {name: run}, claims)


def stronger_balancing(number: int) -> Reason:
    """Ten times the weight of the load-balancing loss."""
    row, paper = next(iter(ITEMS[f"design-choices-fig{number}"].runs.items()))
    name = f"{row}, balancing weight 0.1"

    def claims(m: Measured) -> Iterator[Claim]:
        yield Claim("share of collapsed experts with that weight", choices.collapsed(m, name), high=0.0)
        low = choices.UNUSED
        yield Claim("smallest load relative to the even share", choices.least_load(m, name), low=low)

    run = FurtherRun.of(paper, "--routing.load_balance=0.1")
    return Reason("the balancing loss's weight of 0.01 is too small here", {name: run}, claims)


def better_mixture(item: str, norm: str) -> Reason:
    """A mixture trained longer loses less without its routers."""

    def lost(m: Measured, row: str) -> Values:
        nodes = [name for name in ITEMS[item].runs if name != "router"]
        best = extreme([m.loss(row, measure=router_free_name(node, norm)) for node in nodes], min)
        return difference(best, m.loss(row, measure=router_free_name("router", norm)))

    def claims(m: Measured) -> Iterator[Claim]:
        says = "loss at the best node less with routers, in twice the steps less in these"
        yield below(says, lost(m, twice("router")), lost(m, "router"))

    return in_twice_the_steps(
        "loss added without routers: still falling", ITEMS[item].runs, ["router"], claims
    )


SEQUENCE, TOKEN = choices.SEQUENCE_TOP2, "token, layer-wise, top-2"
MOE, AOE = "2 MoE + aux", "10 AoE 256 + aux"


topic_agreement = partial(choices.agreement, measure="topics")


REASONS: dict[str, tuple[Reason, ...]] = {
    "lory-fig2-left": (
        steps("lory-fig2-left", "0.3B/8E", "0.3B", training),
        rates("lory-fig2-left", "0.3B/8E", "0.3B", training),
    ),
    "lory-fig2-right": (
        steps("lory-fig2-right", "0.3B/8E", "0.3B", heldout),
        rates("lory-fig2-right", "0.3B/8E", "0.3B", heldout),
    ),
    "lory-table1": (steps("lory-table1", "0.3B/8E", "0.3B", answers),),
    "lory-fig3": (steps("lory-fig3", "causal segment routing", "prefix routing", training),),
    "lory-fig4": (steps("lory-fig4", "0.3B/8E (sim batch)", "0.3B (sim batch)", training),),
    "lory-fig5": (steps("lory-fig5", "Lory", "EC, segment-level", training),),
    "lory-table2": (steps("lory-table2", "0.3B/8E (Lory)", "0.3B/8E (EC, seg-level)", heldout),),
    **{
        item: (grows(item, "0.3B/8E", "agreement of experts and domain in the last layer", last_layer),)
        for item in ("lory-fig6", "lory-fig11")
    },
    "lory-table7": (steps("lory-table7", "7B/4E", "7B", heldout),),
    "lory-table8": (steps("lory-table8", "7B/4E", "7B", answers),),
    "lory-fig8": (steps("lory-fig8", "7B/4E", "7B", training),),
    "lory-fig9": (grows("lory-fig9", "1.5B/32E", "share of 32 experts in use at the end", in_use_late),),
    "lory-fig10": (longer_warmup(),),
    "design-choices-table1": (
        other_setting(
            "a weight decay of 0.5 is for many more steps",
            WEAK_DECAY,
            ITEMS["design-choices-table1"].runs,
            TOKEN,
            "dense, 4x FFN width",
            heldout,
        ),
        steps("design-choices-table1", TOKEN, "dense, 4x FFN width", heldout),
    ),
    "design-choices-table2": (steps("design-choices-table2", "token (6, 2)", "token (4, 2)", heldout),),
    "design-choices-table3": (
        steps(
            "design-choices-table3",
            "sequence, layer-wise, learned",
            "sequence, layer-wise, random",
            heldout,
        ),
    ),
    "design-choices-collapse": (
        grows("design-choices-collapse", "no balancing", "share of collapsed experts", choices.collapsed),
    ),
    "design-choices-fig2": (
        grows("design-choices-fig2", SEQUENCE, "share of collapsed experts", choices.collapsed),
    ),
    **{f"design-choices-fig{number}": (stronger_balancing(number),) for number in (3, 4)},
    "design-choices-assignment": (
        grows("design-choices-assignment", SEQUENCE, "agreement of experts and topic", topic_agreement),
    ),
    "design-choices-random-assignment": (
        grows(
            "design-choices-random-assignment", "learned", "agreement of experts and topic", topic_agreement
        ),
    ),
    "aoe-table1": (better_mixture("aoe-table1", "2"),),
    "aoe-table6": (better_mixture("aoe-table6", "1"),),
    "aoe-table7": (better_mixture("aoe-table7", "inf"),),
    "aoe-fig2": (steps("aoe-fig2", AOE, MOE, training), rates("aoe-fig2", AOE, MOE, training)),
    "aoe-table2": (steps("aoe-table2", AOE, MOE, heldout), rates("aoe-table2", AOE, MOE, heldout)),
    "aoe-table3": (steps("aoe-table3", "top-p, AoE", "top-p, MoE", heldout),),
    "aoe-table5": (steps("aoe-table5", "AoE", "MoE", heldout),),
}
"""By item, the most likely first."""
