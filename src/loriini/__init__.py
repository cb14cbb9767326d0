"""Loriini: pre-training of mixture-of-experts language models with any routing design.

The names below are imported when they are first used: `import loriini` loads neither torch nor transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from loriini import auto_classes

if TYPE_CHECKING:
    from loriini.data.prepare.similarity.walks import plain_walk, similar_walk
    from loriini.model import LoriiniConfig, LoriiniForCausalLM, LoriiniModel
    from loriini.model.generate.collator import PromptCollator
    from loriini.model.weights.loading import load_model
    from loriini.routing import DESIGNS, Routing, RoutingConfig
    from loriini.train.config import TrainConfig

__all__ = [
    "DESIGNS",
    "LoriiniConfig",
    "LoriiniForCausalLM",
    "LoriiniModel",
    "PromptCollator",
    "Routing",
    "RoutingConfig",
    "TrainConfig",
    "load_model",
    "plain_walk",
    "similar_walk",
]
__version__ = "0.1.0"

_MODULES = {
    "loriini.data.prepare.similarity.walks": ("plain_walk", "similar_walk"),
    "loriini.model": ("LoriiniConfig", "LoriiniForCausalLM", "LoriiniModel"),
    "loriini.model.generate.collator": ("PromptCollator",),
    "loriini.model.weights.loading": ("load_model",),
    "loriini.routing": ("DESIGNS", "Routing", "RoutingConfig"),
    "loriini.train.config": ("TrainConfig",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


auto_classes.register()
