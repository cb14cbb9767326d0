"""JSON objects in files that may be damaged or edited, and numbers that JSON lacks (NaN, infinity)."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten
from typing import Any

from loriini.common.atomic import write_json
from loriini.common.errors import InputError


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """A file's JSON object; InputError with the remedy for a file that holds anything else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not readable JSON ({shorten(str(error), 200)}); {remedy}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: not a JSON object; {remedy}")
    return value


def read_or_make(
    path: Path, make: Callable[..., Any], *arguments: Any, sort_keys: bool = True
) -> dict[str, Any]:
    """A file's JSON object; if the file is absent, the result of `make(*arguments)` is written to it first.

    InputError for a damaged file.
    """
    if not path.exists():
        write_json(path, make(*arguments), sort_keys)
    return read_object(path, "remove it; it is made again")


def without_nan(value: Any) -> Any:
    """A JSON value with null for numbers that are not finite."""
    if isinstance(value, dict):
        return {key: without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
