"""Sections that several reports have; None if there is nothing to show."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from loriini.analyze.routes import Routes
from loriini.reporting import page as p
from loriini.reporting import plots
from loriini.reporting.curves import Metrics, column, routed_steps, running_mean, with_load_entropy
from loriini.reporting.page import Html
from loriini.reporting.wording import large, minus
from loriini.routing import RoutingConfig

DOMAINS_SHOWN = 40
"""The most domains that are shown, those with the most units; statistics are of all domains."""
LAST = 10
"""Records at the end of training, whose mean is shown."""


def training_cards(metrics: Metrics) -> Html:
    """Steps, tokens, loss and experts at the end of a run."""
    last = metrics[-1]
    return p.cards(
        {
            "steps": f"{last['step']:,}",
            "tokens": large(last["tokens"]),
            "training loss": f"{running_mean(column(metrics, 'loss'))[-1]:.2f}",
            "experts in a layer": str(last.get("experts", 1)),
        }
    )


def learning_section(name: str, metrics: Metrics) -> Html | None:
    """A run's loss over training; None without steps."""
    if not metrics:
        return None
    caption = "Every step faint, the running mean strong; the initial drop is cut off."
    if metrics[0].get("experts", 1) < metrics[-1].get("experts", 1):
        caption += " Dotted line: the dense model is copied into the experts."
    return p.figure(plots.loss_curve(name, metrics), caption)


def expert_use_plots(metrics: Metrics, design: RoutingConfig) -> Html | None:
    """How the experts of `design` were used over training."""
    routed = routed_steps(metrics)
    if not routed:
        return None
    if design.selection == "expert_choice":
        use = p.paragraph(
            "In training every expert chooses the same number of tokens or segments, so the load is even "
            "whatever is learnt. In evaluation each token or segment chooses its experts, and their load may "
            "be uneven."
        )
    else:
        use = _activity(routed) if design.soft else _busiest(routed)
    return p.join(use, _loads(routed))


def _activity(routed: Metrics) -> Html:
    """How evenly the experts of a soft design are weighted."""
    experts = routed[-1]["experts"]
    effective = np.nanmean(np.exp(column(routed[-LAST:], "gate_entropy")))
    return p.join(
        p.paragraph(
            "At the end of training a routing decision spreads its weight over ",
            p.strong(f"{effective:.1f} of {experts} experts"),
            ", measured by its entropy.",
        ),
        p.figure(
            plots.entropy_curves(routed, "gate_entropy", "effective number of experts in a decision"),
            "The exponential of the mean entropy of the weights: 1 if one expert gets all the weight, "
            f"{experts} (dotted) if all get the same.",
        ),
    )


def _busiest(routed: Metrics) -> Html:
    """The largest and the smallest load of a sparse design at the end of training."""
    loads = [np.array(m["load"]) for m in routed if "load" in m]
    if not loads:
        return p.join()
    load_LE = np.mean(loads[-LAST:], axis=0)
    return p.paragraph(
        "At the end of training the busiest expert of a layer gets ",
        p.strong(f"{100 * load_LE.max(-1).mean():.1f} % of the choices"),
        f" and the least busy {100 * load_LE.min(-1).mean():.1f} % (averaged over layers; "
        f"{100 / load_LE.shape[-1]:.1f} % if the load were even).",
    )


def _loads(routed: Metrics) -> Html:
    """The load of the experts over training, where at least two steps recorded it."""
    recorded = with_load_entropy(routed)
    if len(recorded) < 2:
        return p.join()
    return p.pair(
        p.figure(
            plots.load_bands(recorded),
            "Load: the height of a band is the expert's share of the choices (of the weights, if every token "
            "gets every expert), expert 0 below (blue), the last above (red). Bands of the same height: an "
            "even load. One band alone: collapse.",
        ),
        p.figure(
            plots.entropy_curves(recorded, "load_entropy", "experts in use"),
            "The exponential of the entropy of this load: 1 if one expert carries it all, "
            f"{recorded[-1]['experts']} (dotted) if it is even.",
        ),
    )


def who_routes_where(routes: Routes) -> Html:
    """Share of choices and mean weight by domain, and how far they depend on the domain."""
    shown = routes.largest(DOMAINS_SHOWN)
    left_out = len(routes.domains) - len(shown.domains)
    return p.join(
        _agreement(routes) if len(routes.domains) > 1 else "",
        _heat_maps(shown),
        p.element("h3", "Load and agreement, by layer"),
        _statistics(routes),
        p.note(
            _explanations(routes),
            f"Measured on held-out text: {routes.sequences.sum():,} sequences with {routes.units.sum():,} "
            "routing decisions in each layer. Layers and experts are counted from 0.",
            f" The {left_out} values of {routes.field} with least text are not shown." if left_out else "",
        ),
    )


def _agreement(routes: Routes) -> Html:
    agreement = routes.domain_agreement
    best = agreement.argmax()
    return p.paragraph(
        f"The choice of experts agrees with the {routes.field} by ",
        p.strong(f"{agreement.mean():.2f}"),
        f" (averaged over layers; 0 is chance, 1 means that the {routes.field} decides the experts). "
        f"Layer {best} agrees most: {agreement[best]:.2f}.",
    )


def _heat_maps(routes: Routes) -> Html:
    """A heat map of the share of choices, and one of the mean weight if that differs."""
    experts = routes.choices.shape[-1]
    colours = f"beside the even share 1/{experts}: red is more, blue is less, clear is even."
    cells = f"each expert (columns) for each {routes.field} (rows)"
    weights = plots.shares_by_domain(routes.mean_gates, routes.domains)
    if np.allclose(routes.choice_shares, routes.mean_gates, atol=1e-3):
        return p.figure(weights, f"Mean weight of {cells}, {colours}")
    choices = plots.shares_by_domain(routes.choice_shares, routes.domains)
    return p.pair(
        p.figure(choices, f"Share of choices: how much of all choices falls on {cells}, {colours}"),
        p.figure(weights, f"Mean weight of {cells}, 0 where it is not chosen, {colours}"),
    )


def _statistics(routes: Routes) -> Html:
    confidence = (routes.confidence_entropy * routes.units).sum(-1) / routes.units.sum()
    columns = {
        "experts in use": (np.exp(routes.load_entropy), ".2f"),
        "max − min load": (routes.load_range, ".3f"),
        "experts by score": (np.exp(confidence), ".2f"),
        "bits": (routes.domain_bits, ".3f"),
        "bits by chance": (routes.chance_bits, ".3f"),
        "agreement": (routes.domain_agreement, ".2f"),
    }
    rows = (
        [
            f"layer\N{NO-BREAK SPACE}{layer}",
            *(minus(f"{values[layer]:z{form}}") for values, form in columns.values()),
        ]
        for layer in range(len(routes.choices))
    )
    return p.table(["", *columns], rows)


def _explanations(routes: Routes) -> str:
    experts, field = routes.choices.shape[-1], routes.field
    return (
        f"Experts in use: the exponential of the load's entropy, {experts} if the load is even. Experts by "
        "score: that of the softmax of a decision's scores. Bits: what one choice says about the "
        f"{field}; by chance: the same when whole texts are assigned to a {field} at random. Agreement: the "
        "bits above chance as a share of the most that is possible (the adjusted mutual information). "
    )


def document_and_nearest(document: Mapping[str, Any]) -> Html:
    """The beginnings of a document and of its nearest neighbours."""
    return p.join(
        p.element("h3", "A document and its nearest neighbours"),
        p.quotation(f"{document['domain']} · {document['id']}", document["text"]),
        p.pair(
            *(
                p.quotation(f"cosine {n['similarity']:.2f} · {n['domain']} · {n['id']}", n["text"])
                for n in document["neighbors"]
            )
        ),
    )
