"""Sections about one mixture, which every report shares. Each is None when there is nothing to show."""

import math
from collections.abc import Mapping

import numpy as np

from loriini.analyze import plots
from loriini.analyze.page import Html, figure, folded, items, join, note, pair, paragraph, strong, table
from loriini.analyze.plots import Metrics, routed_steps, utilisation
from loriini.analyze.routes import Routes, mutual_information, top_experts


def learning(runs: Mapping[str, Metrics]) -> Html | None:
    """Loss over training, and with two runs also the second's minus the first's."""
    runs = {name: metrics for name, metrics in runs.items() if metrics}
    if not runs:
        return None
    copied = any(metrics[0].get("experts", 1) < metrics[-1].get("experts", 1) for metrics in runs.values())
    caption = "Every step faint, their running mean strong; the fall of the first steps is cut off."
    if copied:
        caption += " Dotted: the dense model is copied into the experts."
    curves = figure(plots.loss_curves(runs), caption)
    if len(runs) != 2:
        return curves
    (first, dense), (second, mixture) = runs.items()
    difference = figure(
        plots.loss_difference(dense, mixture),
        f"Loss of {second} minus loss of {first} at the same step: below the line {second} is ahead.",
    )
    return pair(curves, difference)


def use_of_experts(metrics: Metrics) -> Html | None:
    """How many experts are active over training, and how evenly they are weighed."""
    routed = routed_steps(metrics)
    if not routed:
        return None
    experts = routed[-1]["experts"]
    share = utilisation(metrics)[1][-1].mean()
    effective = np.exp(routed[-1]["gate_entropy"]).mean()
    return join(
        paragraph(
            "At the end of training ",
            strong(f"{share:.0%} of the experts are active"),
            f", averaged over layers, and a decision spreads its weight as if over {effective:.1f} of {experts} experts.",
        ),
        pair(
            figure(
                plots.utilisation_curves(metrics),
                f"Active: weighed over 2/E = {2 / experts:.3g}, twice the even share, at least once in "
                f"{plots.WINDOW} steps.",
            ),
            figure(
                plots.entropy_curves(metrics),
                "The exponential of the gates' mean entropy: 1 when one expert takes all, "
                f"{experts} (dotted) when all weigh the same.",
            ),
        ),
    )


def who_routes_where(routes: Routes | None) -> Html | None:
    """Mean weights by domain, what they tell of the domain, and each domain's favourite experts."""
    if routes is None or routes.mean_gates.shape[-1] == 1:
        return None
    domains, experts = routes.mean_gates.shape[1:]
    bits = mutual_information(routes.mean_gates, routes.units)
    shares = routes.units / routes.units.sum()
    most = min(math.log2(experts), float(-(shares * np.log2(shares)).sum()))
    return join(
        paragraph(
            "Specialisation is ",
            strong(f"{bits.mean():.3f} bits"),
            f" of at most {most:.2f}, averaged over layers; layer {bits.argmax()} has the most, {bits.max():.3f}. "
            "It is the mutual information of domain and expert: draw an expert by its weight, and so many bits it "
            "tells you of the domain the text is from. At 0 every domain is routed alike.",
        ),
        figure(
            plots.gates_by_domain(routes.mean_gates, routes.domains),
            "Mean weight of each expert (columns) on held-out text of each domain (rows), beside the even share: "
            "red is more, blue is less, and a clear tile is even.",
        ),
        paragraph("What each domain weighs most:"),
        items(_favourite(routes, domain) for domain in range(domains)),
        folded("The favourite expert of each domain, layer by layer", _favourites(routes)),
        note(
            "Layers and experts are counted from 0, as in the model. All units count, those of segment 1 too."
        ),
    )


def _favourite(routes: Routes, domain: int) -> Html:
    gates_LE = routes.mean_gates[:, domain]
    layer, expert = np.unravel_index(gates_LE.argmax(), gates_LE.shape)
    weight = gates_LE.max()
    return join(
        strong(routes.domains[domain]),
        f": expert {expert} of layer {layer}, with a weight of {weight:.2f}, "
        f"{weight * gates_LE.shape[1]:.1f} times the even share",
    )


def _favourites(routes: Routes) -> Html:
    top = top_experts(routes.mean_gates)
    layers = range(len(top))
    rows = (
        [name, *(f"{top[layer, i]} ({routes.mean_gates[layer, i].max():.2f})" for layer in layers)]
        for i, name in enumerate(routes.domains)
    )
    return table(["domain", *(f"layer {layer}" for layer in layers)], rows)
