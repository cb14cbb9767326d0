"""Loriini: pre-training mixture-of-experts language models, every routing design a row in one space."""

from loriini.model import LoriiniConfig, LoriiniForCausalLM, LoriiniModel
from loriini.routing import DESIGNS, Routing, RoutingConfig

__all__ = ["DESIGNS", "LoriiniConfig", "LoriiniForCausalLM", "LoriiniModel", "Routing", "RoutingConfig"]
__version__ = "0.1.0"
