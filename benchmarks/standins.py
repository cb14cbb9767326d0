"""Stand-ins for libraries that prepare corpora, so that training can be measured where they are missing.

Import it before `loriini`. It replaces only what is not installed.
"""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast
from unittest.mock import MagicMock

UNUSED = ("faiss", "numba", "pyarrow", "scipy", "xxhash", "zstandard")
"""Libraries that `loriini.train` imports with the corpus and that no training step calls."""


class StandIns(MetaPathFinder, Loader):
    """Finds an empty module for each name of UNUSED."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in UNUSED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return cast(ModuleType, MagicMock(name=spec.name))

    def exec_module(self, module: ModuleType) -> None:
        pass


sys.meta_path.append(StandIns())
