"""The AoE paper's items: trained models."""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from statistics import fmean

import numpy as np

from loriini.evaluate.runs import remove_routers, without_weights
from loriini.evaluate.settings import RouterFree
from loriini.papers.published import ITEMS, published_values
from loriini.papers.reproduce.charts import Chart
from loriini.papers.reproduce.claim import Claim, above, below, close, exactly, not_judged
from loriini.papers.reproduce.experiments import common as c
from loriini.papers.reproduce.measured import Layer, Measured
from loriini.papers.reproduce.plan import Experiment
from loriini.papers.reproduce.quantities import Values, difference, extreme, mean_of, ratio
from loriini.papers.reproduce.scales import paper_run
from loriini.recipes import default_vocabulary

BY_L2 = ITEMS["aoe-table1"].runs
"""Rows of table 1: experts ranked by the L2 norm of their activations at a node, or chosen by the router."""
NODES = tuple(row for row, run in BY_L2.items() if run.router_free)
"""Rows of tables 1, 6 and 7 whose experts are ranked."""
NODES_BY_L2 = {f"{row}, L2 norm": BY_L2[row] for row in NODES}
"""Rows of table 1 that are ranked, as they are called in tables 6 and 7."""
CONFIGURATIONS = ITEMS["aoe-table2"].runs
ONE_MODEL = "whether the best node differs between models: here is one"
ARC = {value.row: value.value for value in published_values("aoe-table1", column="ARC-C, Phi-3.5")}
KEPT = (ARC["SiLU(xW_g)"] - 25) / (ARC["router"] - 25)
"""The share of the accuracy above chance that Phi-3.5 keeps on ARC-C; of the whole accuracy it is 71 %."""
EARLY = (0.2, 0.36)
"""Part of training that is called early: the first fifth of what follows a warm-up of a fifth."""
AUTONOMOUS = tuple(row for row in CONFIGURATIONS if "AoE" in row)
TRADITIONAL = tuple(row for row in CONFIGURATIONS if "AoE" not in row)
MOE, AOE = "2 MoE + aux", "10 AoE 256 + aux"
"""Rows of 732M with the auxiliary loss: the traditional mixture, and the AoE that is compared with it."""


def lowest_loss(m: Measured) -> str:
    """The row of the node of the lowest loss by L2, empty where none is measured.

    This is the best node: the highest of several accuracies is partly luck.
    """
    losses = {row: fmean(found.values()) for row in NODES if (found := m.loss(row))}
    return min(losses, key=losses.__getitem__, default="")


def best_node(m: Measured) -> Iterator[Claim]:
    """The best node keeps most of the accuracy above chance; ranking computes more than routing."""
    if best := lowest_loss(m):
        kept = ratio(*(c.above_chance(m.accuracy(row)) for row in (best, "router")))
        quantity = f"share of the accuracy above chance that is kept at the node of the lowest loss, {best}"
        claim, clear = Claim(quantity, kept, KEPT), c.is_above_chance(m.accuracy("router"))
        yield claim if clear else not_judged(claim, f"with routers {c.AT_CHANCE}")
    yield Claim(ONE_MODEL, {})
    least = min(map(active_parameters, NODES)) / active_parameters("router")
    yield exactly("active parameters at the node with fewest over those with routers", least, low=1.0)


@cache
def active_parameters(row: str) -> int:
    """Active parameters of the paper's model of a row of table 1: what a token computes."""
    run = paper_run(BY_L2[row])
    model = without_weights(run.config(default_vocabulary(run)))
    if router_free := BY_L2[row].router_free:
        remove_routers(model, RouterFree.parse(router_free))
    return model.config.parameters()[1]


def l2_keeps_more(m: Measured, norm: str) -> Iterator[Claim]:
    """Another norm keeps less than L2 does: higher loss, mean over nodes, and at the best node."""
    by_norm, by_l2 = (list(map(m.loss, rows)) for rows in (NODES, NODES_BY_L2))
    quantity = f"mean loss over nodes by norm {norm} minus that by L2"
    yield above(quantity, mean_of(by_norm), mean_of(by_l2))
    quantity = f"loss at the best node by norm {norm} minus that by L2"
    yield above(quantity, extreme(by_norm, min), extreme(by_l2, min))


def node_columns(m: Measured, row: str) -> Mapping[str, Values]:
    return {"perplexity": c.exp(m.loss(row))}


def router_free_columns(m: Measured, row: str) -> Mapping[str, Values]:
    return {
        "accuracy, %": c.scaled(m.accuracy(row), 100),
        "perplexity": c.exp(m.loss(row)),
        "active parameters": {0: active_parameters(row)},
    }


def every_configuration(m: Measured) -> Iterator[Claim]:
    """Every AoE against every traditional configuration, in answers and in loss."""
    worst, best = (
        extreme([m.likelihood(row) for row in rows], pick)
        for rows, pick in ((AUTONOMOUS, min), (TRADITIONAL, max))
    )
    quantity = "log-likelihood of right answers, worst AoE minus best traditional"
    yield above(quantity, worst, best)
    for aux in ("", " + aux"):
        traditional = MOE if aux else "1 MoE"
        for row in (row for row in AUTONOMOUS if row.endswith("+ aux") == bool(aux)):
            yield c.compare(below, "loss", m.loss, row, traditional)
    for row in ("3 MoE + aux + factorized", "4 MoE + aux + large router"):
        yield c.compare(below, "loss", m.loss, AOE, row)


def answers_and_perplexity(m: Measured, row: str) -> Mapping[str, Values]:
    return {**c.question_columns(m, row), "perplexity": c.exp(m.loss(row))}


def other_selections(m: Measured) -> Iterator[Claim]:
    """AoE better with top-p and with expert choice."""
    for how in ("top-p", "expert choice"):
        pair = (f"{how}, AoE", f"{how}, MoE")
        yield c.compare(below, "loss", m.loss, *pair)
        yield c.compare(above, "log-likelihood of right answers", m.likelihood, *pair)


def selection_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """Answers and perplexity, and how many experts a token gets, mean over layers."""
    experts = c.layer_mean(m.per_layer(row, "experts_per_unit"))
    return {**answers_and_perplexity(m, row), "experts of a token": experts}


def larger_gain_at_4b(m: Measured) -> Iterator[Claim]:
    """Better at 4B, by more than at 732M."""
    gains = difference(m.loss("MoE"), m.loss("AoE"))
    yield Claim("gain in loss of AoE at 4B", gains, low=0.0, unit="nats")
    smaller = difference(m.loss(MOE), m.loss(AOE))
    yield above("gain of AoE at 4B minus that at 732M", gains, smaller)


def loss_by_rank(m: Measured) -> Iterator[Claim]:
    """Below the traditional mixture, lowest at a third of the width, about equal at 64."""
    loss = partial(c.compare, what="training loss", of=m.training_loss)
    for row in ("8 AoE 128 + aux", AOE, "12 AoE 512 + aux"):
        yield loss(below, one=row, other=MOE)
    yield loss(close, one="6 AoE 64 + aux", other=MOE)
    for row in ("6 AoE 64 + aux", "8 AoE 128 + aux", "12 AoE 512 + aux"):
        yield loss(below, one=AOE, other=row)


def even_and_confident(m: Measured) -> Iterator[Claim]:
    """AoE's load is more even, its choices are more confident, increasingly with depth."""
    for aoe, moe in (("9 AoE 256", "1 MoE"), (AOE, MOE)):
        load = [c.layer_mean(m.per_layer(row, "load_entropy")) for row in (aoe, moe)]
        yield above(f"entropy of the load, {aoe} minus {moe}", *load)
        confidence = [c.layer_mean(m.per_layer(row, score_entropy)) for row in (aoe, moe)]
        yield below(f"entropy of the scores, {aoe} minus {moe}", *confidence)
        quantity = f"change of the entropy of the scores from layer to layer, {aoe}"
        yield Claim(quantity, c.slope(m.per_layer(aoe, score_entropy)), high=0.0, unit="nats")


def score_entropy(layer: Layer) -> float:
    """Entropy of the softmax of the scores, mean over domains."""
    return fmean(layer["confidence_entropy"].values())


def load_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """Entropies, and the largest less the smallest load, means over layers; the paper prints a sum."""
    return {
        "entropy of the load": c.layer_mean(m.per_layer(row, "load_entropy")),
        "highest minus lowest load, mean of the layers": c.layer_mean(m.per_layer(row, "load_range")),
        "entropy of the scores": c.layer_mean(m.per_layer(row, score_entropy)),
    }


def load_charts(m: Measured) -> Iterator[Chart]:
    loads = {row: m.per_layer(row, "load_entropy") for row in m.finished}
    yield c.layer_chart(loads, "entropy of the load, nats")
    confidence = {row: m.per_layer(row, score_entropy) for row in m.finished}
    yield c.layer_chart(confidence, "entropy of the scores, nats")


def norms_alike(m: Measured) -> Iterator[Claim]:
    """Norms of a layer's experts are alike at the end; without balancing they were less so at the start."""
    for row in ("9 AoE 256", AOE):
        quantity = f"lowest over highest norm of a layer's experts at the end, {row}"
        yield Claim(quantity, norm_ratio(m, row), low=0.5)
    end, early = norm_ratio(m, "9 AoE 256"), norm_ratio(m, "9 AoE 256", *EARLY)
    yield above("that ratio without balancing, at the end minus early in training", end, early, unit="")


def norm_ratio(m: Measured, row: str, start: float = 1.0, stop: float = 1.0) -> Values:
    """Lowest over highest norm of a layer's experts, mean over layers and part of training (default: end)."""
    norms = {seed: np.array(values) for seed, values in m.each(row, "training", "norms", "values").items()}
    ratios = {seed: norms_SLE.min(-1) / norms_SLE.max(-1) for seed, norms_SLE in norms.items()}
    return c.mean_of_part(ratios, start, stop)


def norm_columns(m: Measured, row: str) -> Mapping[str, Values]:
    return {
        "lowest over highest norm at the end": norm_ratio(m, row),
        "the same early in training": norm_ratio(m, row, *EARLY),
    }


def norm_charts(m: Measured) -> Iterator[Chart]:
    for row in m.finished:
        yield from c.expert_charts(m, row, "norms", "mean activation norm")


by_answers = partial(Experiment, measures=("heldout", "questions"), columns=answers_and_perplexity)
by_other_norm = partial(Experiment, measures=("heldout",), columns=node_columns, more_runs=NODES_BY_L2)

AOE_EXPERIMENTS = (
    Experiment("aoe-table1", best_node, ("heldout", "questions"), router_free_columns),
    by_other_norm("aoe-table6", partial(l2_keeps_more, norm="1")),
    by_other_norm("aoe-table7", partial(l2_keeps_more, norm="inf")),
    by_answers("aoe-table2", every_configuration),
    by_answers(
        "aoe-table3", other_selections, measures=("heldout", "questions", "routes"), columns=selection_columns
    ),
    by_answers("aoe-table5", larger_gain_at_4b, more_runs={row: CONFIGURATIONS[row] for row in (MOE, AOE)}),
    Experiment("aoe-fig2", loss_by_rank, columns=c.training_columns, charts=c.losses),
    Experiment("aoe-fig3", even_and_confident, ("routes",), load_columns, load_charts),
    Experiment("aoe-fig4", norms_alike, columns=norm_columns, charts=norm_charts),
)
