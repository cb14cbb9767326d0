"""The AoE paper's items: trained models."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from loriini.published import published_values
from loriini.published.items import ITEMS
from loriini.published.items.aoe import CONFIGURATIONS, NODES
from loriini.reproduce import common as c
from loriini.reproduce.charts import Chart, band, dots, lines
from loriini.reproduce.claims import (
    CLOSE,
    Claim,
    Values,
    above,
    below,
    close,
    difference,
    extreme,
    mean_of,
    ratio,
)
from loriini.reproduce.measured import Measured
from loriini.reproduce.measures import ROUTER_FREE
from loriini.reproduce.rows import Row
from loriini.reproduce.scales import paper_run

KEPT = 0.71
"""The share of the accuracy that the paper's worse model keeps at its best node."""
EARLY = (0.2, 0.36)
"""Part of training that is called early: the first fifth of what follows a warm-up of a fifth."""
AUTONOMOUS = tuple(row for row in CONFIGURATIONS if "AoE" in row)
TRADITIONAL = tuple(row for row in CONFIGURATIONS if "AoE" not in row)
QUESTIONS = "questions are continuations of held-out text among four; the paper's tasks need larger models"
OUR_MIXTURE = "on a mixture of our own; questions are continuations of held-out text among four"


def router_free_name(row: str, norm: str) -> str:
    """The measure of a row of tables 1, 6 and 7."""
    return f"{ROUTER_FREE} {NODES[row]}:{norm}" if row in NODES else ROUTER_FREE


def router_free_names(*norms: str) -> tuple[str, ...]:
    """The measures of all nodes and of the routers."""
    return (ROUTER_FREE, *(router_free_name(row, norm) for norm in norms for row in NODES))


def router_free_accuracy(m: Measured, row: str, norm: str) -> Values:
    """The accuracy of questions with experts ranked at a row's node."""
    return c.accuracy_of(m, "router", f"{router_free_name(row, norm)}/questions")


def best_node(m: Measured) -> Iterator[Claim]:
    """The best node keeps most of the accuracy; ranking takes longer than routing."""
    routed = router_free_accuracy(m, "router", "2")
    best = extreme([router_free_accuracy(m, row, "2") for row in NODES], max)
    yield Claim("accuracy at the best node over that with routers", ratio(best, routed), low=KEPT)
    seconds = m.of("router", ROUTER_FREE, "seconds")
    fastest = extreme([m.of("router", router_free_name(row, "2"), "seconds") for row in NODES], min)
    yield Claim("seconds at the fastest node over those with routers", ratio(fastest, seconds), low=1.0)


def l2_keeps_more(m: Measured, norm: str) -> Iterator[Claim]:
    """Another norm keeps less than L2 does: higher loss, mean over nodes, and at the best node."""
    losses = {n: [m.loss("router", measure=router_free_name(row, n)) for row in NODES] for n in ("2", norm)}
    says = f"mean loss over nodes by norm {norm} less by L2"
    yield above(says, mean_of(losses[norm]), mean_of(losses["2"]))
    best = {n: extreme(of_norm, min) for n, of_norm in losses.items()}
    yield above(f"loss at the best node by norm {norm} less by L2", best[norm], best["2"])


def router_free_columns(m: Measured, row: str, norm: str) -> Mapping[str, Values]:
    """Accuracy, perplexity and seconds at a node."""
    name = router_free_name(row, norm)
    return {
        "accuracy, %": c.scaled(router_free_accuracy(m, row, norm), 100),
        "perplexity": c.exp(m.loss("router", measure=name)),
        "seconds": m.of("router", name, "seconds"),
    }


def router_free_chart(m: Measured, norm: str) -> Iterator[Chart]:
    """Perplexity at every node."""
    series = {
        row: {"perplexity": router_free_columns(m, row, norm)["perplexity"]} for row in (*NODES, "router")
    }
    yield dots(f"without routers, norm {norm}", "perplexity", series)


def router_free_row(item: str, norm: str) -> Row:
    """One of tables 1, 6 and 7."""
    l2 = norm == "2"
    return Row(
        item,
        best_node if l2 else partial(l2_keeps_more, norm=norm),
        router_free_names("2") if l2 else router_free_names("2", norm),
        partial(router_free_columns, norm=norm),
        partial(router_free_chart, norm=norm),
        note=OUR_MIXTURE,
    )


def every_configuration(m: Measured) -> Iterator[Claim]:
    """Every AoE against every traditional configuration, in answers and in loss."""
    worst, best = (
        extreme([c.likelihood_of(m, row) for row in rows], pick)
        for rows, pick in ((AUTONOMOUS, min), (TRADITIONAL, max))
    )
    yield above("log-likelihood of right answers, worst AoE less best traditional", worst, best)
    for aux in ("", " + aux"):
        traditional = f"{'2 MoE' if aux else '1 MoE'}{aux}"
        for row in (row for row in AUTONOMOUS if row.endswith("+ aux") == bool(aux)):
            yield below(f"loss of {row} less that of {traditional}", m.loss(row), m.loss(traditional))
    for row in ("3 MoE + aux + factorized", "4 MoE + aux + large router"):
        aoe = "10 AoE 256 + aux"
        yield below(f"loss of {aoe} less that of {row}", m.loss(aoe), m.loss(row))


def answers_and_perplexity(m: Measured, row: str) -> Mapping[str, Values]:
    """Accuracy, log-likelihood and perplexity."""
    return {**c.question_columns(m, row), "perplexity": c.exp(m.loss(row))}


def answer_charts(m: Measured) -> Iterator[Chart]:
    """Perplexity and log-likelihood of every row."""
    rows = m.finished(list(m.rows))
    yield dots("perplexity", "perplexity", {row: {"mean": c.exp(m.loss(row))} for row in rows})
    likelihood = {row: {"mean": c.likelihood_of(m, row)} for row in rows}
    yield dots("right answers", "log-likelihood, nats a token", likelihood)


def other_selections(m: Measured) -> Iterator[Claim]:
    """AoE better with top-p and with expert choice."""
    for how in ("top-p", "expert choice"):
        pair = (f"{how}, AoE", f"{how}, MoE")
        yield below(f"{how}: loss of AoE less MoE", *map(m.loss, pair))
        says = f"{how}: log-likelihood of right answers, AoE less MoE"
        yield above(says, *(c.likelihood_of(m, row) for row in pair))


SMALLER_MOE, SMALLER_AOE = "2 MoE + aux", "10 AoE 256 + aux"


def larger_gain_at_4b(m: Measured) -> Iterator[Claim]:
    """Better at 4B, by more than at 732M."""
    gains = difference(m.loss("MoE"), m.loss("AoE"))
    yield Claim("gain in loss of AoE at 4B", gains, low=0.0, unit="nats")
    smaller = difference(m.loss(SMALLER_MOE), m.loss(SMALLER_AOE))
    yield above("gain of AoE at 4B less that at 732M", gains, smaller)


def loss_by_rank(m: Measured) -> Iterator[Claim]:
    """Below the traditional mixture, lowest at a third of the width, about equal at 64."""
    moe, least = m.training_loss("2 MoE + aux"), "10 AoE 256 + aux"
    for row in ("8 AoE 128 + aux", least, "12 AoE 512 + aux"):
        yield below(f"training loss of {row} less that of MoE", m.training_loss(row), moe)
    yield close("training loss of AoE 64 less that of MoE", m.training_loss("6 AoE 64 + aux"), moe, CLOSE)
    for row in ("6 AoE 64 + aux", "8 AoE 128 + aux", "12 AoE 512 + aux"):
        yield below(f"training loss of AoE 256 less that of {row}", *map(m.training_loss, (least, row)))


def losses(m: Measured) -> Iterator[Chart]:
    """Training loss of all rows."""
    yield c.loss_chart(m, list(m.rows))


LOAD_RANGE = "highest less lowest load"
LOAD_PAIRS = (("9 AoE 256", "1 MoE"), ("10 AoE 256 + aux", "2 MoE + aux"))


def even_and_confident(m: Measured) -> Iterator[Claim]:
    """AoE's load is more even, its choices are more confident, increasingly with depth."""
    for aoe, moe in LOAD_PAIRS:
        load = [c.layer_mean(m.per_layer(row, "load_entropy")) for row in (aoe, moe)]
        yield above(f"entropy of the load, {aoe} less {moe}", *load)
        confidence = [c.layer_mean(confidence_by_layer(m, row)) for row in (aoe, moe)]
        yield below(f"entropy of the scores, {aoe} less {moe}", *confidence)
        says = f"change of the entropy of the scores from layer to layer, {aoe}"
        yield Claim(says, c.slope(confidence_by_layer(m, aoe)), high=0.0, unit="nats")


def confidence_by_layer(m: Measured, row: str) -> dict[int, list[float]]:
    """Mean entropy of the softmax of the scores over domains, by layer."""
    return {
        seed: [float(np.mean(list(layer["confidence_entropy"].values()))) for layer in layers]
        for seed, layers in m.each(row, "routes", "layers").items()
    }


def load_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """Entropies, and the largest less the smallest load, means over layers; the paper prints a sum."""
    printed = {value.column: value.value for value in published_values("aoe-fig3", row)}
    layers = paper_run(ITEMS["aoe-fig3"].runs[row]).model.num_hidden_layers
    return {
        "entropy of the load": c.layer_mean(m.per_layer(row, "load_entropy")),
        "highest less lowest load, mean": c.layer_mean(m.per_layer(row, "load_range")),
        "the same as published": {0: printed[LOAD_RANGE] / layers} if LOAD_RANGE in printed else {},
        "entropy of the scores": c.layer_mean(confidence_by_layer(m, row)),
    }


def load_charts(m: Measured) -> Iterator[Chart]:
    """Both entropies by layer."""
    rows = m.finished(list(m.rows))
    yield c.route_chart(m, rows, {"load_entropy": "entropy of the load, nats"})
    found = {row: confidence_by_layer(m, row) for row in rows}
    series = {row: band(list(range(len(next(iter(f.values()))))), f) for row, f in found.items() if f}
    yield lines("by layer", "layer", "entropy of the scores, nats", series)


def norms_alike(m: Measured) -> Iterator[Claim]:
    """Norms of a layer's experts are alike at the end; without balancing they were less so at the start."""
    for row in ("9 AoE 256", "10 AoE 256 + aux"):
        says = f"lowest over highest norm of a layer's experts at the end, {row}"
        yield Claim(says, norm_ratio(m, row, -1), low=0.5)
    end, early = norm_ratio(m, "9 AoE 256", -1), early_norm_ratio(m, "9 AoE 256")
    yield above("that ratio without balancing, at the end less early in training", end, early, unit="")


def norms_SLE(m: Measured, row: str) -> dict[int, np.ndarray]:
    """Mean activation norms by seed: steps, layers, experts."""
    return {seed: np.array(found["values"]) for seed, found in m.each(row, "training", "norms").items()}


def norm_ratio(m: Measured, row: str, step: int) -> Values:
    """The lowest over the highest norm of a layer, mean over layers, at a step."""
    return {
        seed: float((norms[step].min(-1) / norms[step].max(-1)).mean())
        for seed, norms in norms_SLE(m, row).items()
    }


def early_norm_ratio(m: Measured, row: str) -> Values:
    """The mean of `norm_ratio` over the steps of the part EARLY of training."""
    found = {}
    for seed, norms in norms_SLE(m, row).items():
        first = min(int(EARLY[0] * len(norms)), len(norms) - 1)
        early = norms[first : max(first + 1, round(EARLY[1] * len(norms)))]
        found[seed] = float((early.min(-1) / early.max(-1)).mean())
    return found


def norm_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """The ratio at the end and early in training."""
    return {
        "lowest over highest norm at the end": norm_ratio(m, row, -1),
        "the same early in training": early_norm_ratio(m, row),
    }


def norm_charts(m: Measured) -> Iterator[Chart]:
    """Norms over training, layer by layer, of the first seed."""
    for row in m.finished(list(m.rows)):
        found = next(iter(m.each(row, "training", "norms").values()), None)
        if found is None:
            continue
        norms = np.array(found["values"])
        for layer in range(norms.shape[1]):
            experts = {
                f"expert {e}": {"x": found["tokens"], "y": norms[:, layer, e].tolist()}
                for e in range(norms.shape[2])
            }
            yield lines(f"{row}: layer {layer}", "training tokens", "mean activation norm", experts)


AOE_ROWS = (
    router_free_row("aoe-table1", "2"),
    router_free_row("aoe-table6", "1"),
    router_free_row("aoe-table7", "inf"),
    Row(
        "aoe-table2",
        every_configuration,
        ("heldout", "questions"),
        answers_and_perplexity,
        answer_charts,
        note=QUESTIONS,
    ),
    Row(
        "aoe-table3",
        other_selections,
        ("heldout", "questions"),
        answers_and_perplexity,
        answer_charts,
        note=QUESTIONS,
    ),
    Row(
        "aoe-table5",
        larger_gain_at_4b,
        ("heldout", "questions"),
        answers_and_perplexity,
        answer_charts,
        more_runs={row: CONFIGURATIONS[row] for row in (SMALLER_MOE, SMALLER_AOE)},
        note=QUESTIONS,
    ),
    Row("aoe-fig2", loss_by_rank, columns=c.training_columns, charts=losses),
    Row("aoe-fig3", even_and_confident, ("routes",), load_columns, load_charts),
    Row("aoe-fig4", norms_alike, columns=norm_columns, charts=norm_charts),
)
