"""Sections that reports share; None where there is nothing to show."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from loriini.analyze import page as p
from loriini.analyze import plots
from loriini.analyze.curves import WINDOW, Metrics, column, routed_steps, running_mean, utilisation
from loriini.analyze.page import Html
from loriini.analyze.routes import Routes, mutual_information, top_experts
from loriini.analyze.wording import large


def training_cards(metrics: Metrics) -> Html:
    """How far a run has come."""
    last = metrics[-1]
    return p.cards(
        {
            "steps": f"{last['step']:,}",
            "tokens": large(last["tokens"]),
            "training loss": f"{running_mean(column(metrics, 'loss'))[-1]:.2f}",
            "experts in a layer": str(last.get("experts", 1)),
        }
    )


def learning(runs: Mapping[str, Metrics]) -> Html | None:
    """Loss over training, and with two runs also the second's minus the first's."""
    runs = {name: metrics for name, metrics in runs.items() if metrics}
    if not runs:
        return None
    caption = "Every step faint, the running mean strong; the fall of the first steps is cut off."
    if any(metrics[0].get("experts", 1) < metrics[-1].get("experts", 1) for metrics in runs.values()):
        caption += " Dotted: the dense model is copied into the experts."
    curves = p.figure(plots.loss_curves(runs), caption)
    if len(runs) != 2:
        return curves
    (first, dense), (second, mixture) = runs.items()
    caption = f"Loss of {second} minus loss of {first} at the same step: below the line, {second} is ahead."
    return p.pair(curves, p.figure(plots.loss_difference(dense, mixture), caption))


def use_of_experts(metrics: Metrics) -> Html | None:
    """How many experts are active over training, and how evenly they are weighed."""
    routed = routed_steps(metrics)
    if not routed:
        return None
    experts = routed[-1]["experts"]
    active = utilisation(metrics)[1][-1].mean()
    effective = np.exp(routed[-1]["gate_entropy"]).mean()
    return p.join(
        p.paragraph(
            "At the end of training ",
            p.strong(f"{100 * active:.0f} % of the experts are active"),
            ", averaged over layers, and a decision spreads its weight as if over "
            f"{effective:.1f} of {experts}.",
        ),
        p.pair(
            p.figure(
                plots.utilisation_curves(metrics),
                f"Active: a weight over 2/{experts}, twice the even share, at least once in {WINDOW} steps.",
            ),
            p.figure(
                plots.entropy_curves(routed, "gate_entropy", "effective number of experts in a decision"),
                "The exponential of the gates' mean entropy: 1 when one expert takes all, "
                f"{experts} (dotted) when all weigh the same.",
            ),
        ),
        _loads(routed),
        _scores(routed),
    )


def _loads(routed: Metrics) -> Html:
    """How the load falls on the experts over training, where enough steps tell it."""
    if sum("load" in m for m in routed) < 2:
        return p.join()
    return p.pair(
        p.figure(
            plots.load_bands(routed),
            "The load: a band for each expert, as high as its share of the choices (of the weights, where "
            "every unit takes every expert). Bands of one height: an even load; one band alone: collapse.",
        ),
        p.figure(
            plots.entropy_curves(routed, "load_entropy", "experts that carry the load"),
            "The exponential of the load's entropy: 1 when one expert has it all, "
            f"{routed[-1]['experts']} (dotted) when it is even.",
        ),
    )


def _scores(routed: Metrics) -> Html:
    """How sure scores are, where gates do not tell it already, and norms where these are the scores."""
    last, figures = routed[-1], []
    if "confidence_entropy" in last and last["confidence_entropy"] != last["gate_entropy"]:
        figures.append(
            p.figure(
                plots.entropy_curves(routed, "confidence_entropy", "experts in doubt"),
                "The exponential of the entropy of the softmax of all scores, the confidence entropy: 1 when "
                f"a decision is sure, {last['experts']} (dotted) when all scores are the same.",
            )
        )
    if sum("activation_norms" in m for m in routed) >= 2:
        figures.append(
            p.figure(
                plots.activation_norms(routed),
                "The mean norm of each expert's own activation, by which it is chosen: a line for each.",
            )
        )
    return p.pair(*figures)


def who_routes_where(routes: Routes | None) -> Html | None:
    """Mean weights by domain, what they tell of the domain, and each domain's favourite experts."""
    if routes is None or routes.mean_gates.shape[-1] == 1:
        return None
    domains, experts = routes.mean_gates.shape[1:]
    bits = mutual_information(routes.mean_gates, routes.units)
    shares = routes.units / routes.units.sum()
    most = min(math.log2(experts), -(shares * np.log2(shares)).sum())
    heat_map = p.figure(
        plots.gates_by_domain(routes.mean_gates, routes.domains),
        "Mean weight of each expert (columns) for each domain (rows) beside the even share: red is more, "
        "blue is less, a clear tile is even.",
    )
    return p.join(
        p.paragraph(
            "Specialisation is ",
            p.strong(f"{bits.mean():.3f} bits"),
            f" of at most {most:.2f}, averaged over layers; layer {bits.argmax()} has most, "
            f"{bits.max():.3f}. It is the mutual information of domain and expert: draw an expert by its "
            "weight, and it tells so many bits of which domain the text is from. At 0, all are routed alike.",
        ),
        p.pair(heat_map, _set_apart(routes)) if domains > 1 else heat_map,
        p.element("h3", "The expert each domain weighs most"),
        _favourites(routes),
        p.note("Layers and experts are counted from 0, as in the model. The units of segment 1 count too."),
    )


def document_and_nearest(document: Mapping[str, Any]) -> Html:
    """The beginnings of a document and of those most similar to it."""
    return p.join(
        p.element("h3", "A document and its nearest"),
        p.quotation(f"{document['domain']} · {document['id']}", document["text"]),
        p.pair(
            *(
                p.quotation(f"cosine {n['similarity']:.2f} · {n['domain']} · {n['id']}", n["text"])
                for n in document["neighbors"]
            )
        ),
    )


def _set_apart(routes: Routes) -> Html:
    """For each domain, the expert to which it gives most beyond what the other domains give on average."""
    gates_LDE = routes.mean_gates
    others_LDE = (gates_LDE.sum(1, keepdims=True) - gates_LDE) / (gates_LDE.shape[1] - 1)
    sentences = []
    for i, name in enumerate(routes.domains):
        lead_LE = gates_LDE[:, i] - others_LDE[:, i]
        layer, expert = np.unravel_index(lead_LE.argmax(), lead_LE.shape)
        here, elsewhere = gates_LDE[layer, i, expert], others_LDE[layer, i, expert]
        weights = f": expert {expert} of layer {layer} weighs {here:.2f}, elsewhere {elsewhere:.2f}"
        sentences.append(p.join(p.strong(name), weights))
    return p.join(p.element("h3", "What sets each domain apart"), p.items(sentences))


def _favourites(routes: Routes) -> Html:
    """The most weighed expert and its weight, by domain and layer."""
    top_LD, weight_LD = top_experts(routes.mean_gates), routes.mean_gates.max(-1)
    layers = range(len(top_LD))
    rows = (
        [name, *(f"{top_LD[layer, i]} ({weight_LD[layer, i]:.2f})" for layer in layers)]
        for i, name in enumerate(routes.domains)
    )
    return p.table(["domain", *(f"layer {layer}" for layer in layers)], rows)
