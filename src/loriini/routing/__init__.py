"""Routing: designs; units and what they are pooled from; scorers; selection and gates; losses; statistics."""

from loriini.routing.design import DESIGNS, RoutingConfig, causality_warning
from loriini.routing.extension import register_gates, register_loss, register_scorer, register_selection
from loriini.routing.router import Router, Routing
from loriini.routing.scorer import RouterSettings, ScorerModule

__all__ = [
    "DESIGNS",
    "Router",
    "RouterSettings",
    "Routing",
    "RoutingConfig",
    "ScorerModule",
    "causality_warning",
    "register_gates",
    "register_loss",
    "register_scorer",
    "register_selection",
]
