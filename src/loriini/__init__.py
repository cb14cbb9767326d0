"""Loriini: pre-training mixture-of-experts language models, every routing design a row in one space."""

import os

if (
    "LORIINI_DATA_WORKER" not in os.environ
):  # processes that prepare data need no model, nor the time it takes
    from loriini.model import LoriiniConfig, LoriiniForCausalLM, LoriiniModel
    from loriini.routing import DESIGNS, Routing, RoutingConfig

__all__ = ["DESIGNS", "LoriiniConfig", "LoriiniForCausalLM", "LoriiniModel", "Routing", "RoutingConfig"]
__version__ = "0.1.0"
