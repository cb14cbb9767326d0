"""Loriini: pre-training mixture-of-experts language models, every routing design a row in one space."""

import os

# Processes that prepare data need no model, nor the time and memory it takes.
if "LORIINI_DATA_WORKER" not in os.environ:
    from loriini.model import LoriiniConfig, LoriiniForCausalLM, LoriiniModel
    from loriini.routing import DESIGNS, Routing, RoutingConfig

__all__ = ["DESIGNS", "LoriiniConfig", "LoriiniForCausalLM", "LoriiniModel", "Routing", "RoutingConfig"]
__version__ = "0.1.0"
