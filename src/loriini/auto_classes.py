"""Let transformers' Auto classes load our models after `import loriini`, which imports no transformers.

A stand-in for the configuration is registered with `AutoConfig` as soon as that class is imported. Its first
use imports `loriini.model`, which registers the configuration and the model themselves.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

MODEL_TYPE = "loriini"
AUTO_CONFIG = "transformers.models.auto.configuration_auto"


class LazyConfig:
    """Stands for `LoriiniConfig` until it is used."""

    model_type = MODEL_TYPE

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        from loriini.model import LoriiniConfig

        return LoriiniConfig(*args, **kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        from loriini.model import LoriiniConfig

        return LoriiniConfig.from_dict(config_dict, **kwargs)


class AfterImport:
    """A finder on `sys.meta_path` that registers the stand-in after AUTO_CONFIG is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != AUTO_CONFIG:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            module.AutoConfig.register(MODEL_TYPE, LazyConfig)

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def register() -> None:
    """Register the stand-in now if `AutoConfig` is imported already, else when it is."""
    if AUTO_CONFIG in sys.modules:
        sys.modules[AUTO_CONFIG].AutoConfig.register(MODEL_TYPE, LazyConfig)
    else:
        sys.meta_path.insert(0, AfterImport())
