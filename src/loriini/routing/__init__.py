"""Routing designs: six independent choices, a module each."""

from loriini.routing.design import DESIGNS, RoutingConfig, causality_warning
from loriini.routing.router import Router, Routing

__all__ = ["DESIGNS", "Router", "Routing", "RoutingConfig", "causality_warning"]
