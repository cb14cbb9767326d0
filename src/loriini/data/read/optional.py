"""Packages of the extra `loriini[inputs]`."""

from importlib import import_module
from typing import Any

from loriini.common.errors import InputError


def import_optional(module: str, path: str) -> Any:
    """Import a module that reading `path` needs; InputError naming the extra when it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        needs = f"reading this needs {module} ({str(error).splitlines()[0]})"
        raise InputError(f"{path}: {needs}; run: pip install 'loriini[inputs]'") from None
