"""Runs from JSON or TOML files, such as the `run.json` of another run."""

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loriini.common.errors import InputError
from loriini.routing import DESIGNS
from loriini.train.config import TrainConfig, from_json
from loriini.train.overrides.apply import with_values

READERS: dict[str, Callable[[str], Any]] = {".json": json.loads, ".toml": tomllib.loads}


def read_run_file(path: Path, recipe: Callable[[str], TrainConfig]) -> TrainConfig:
    """The run of a JSON or TOML file, which has the fields of `run.json`.

    A field `recipe` names the recipe whose settings the file changes, found by the function `recipe`; without
    it absent fields have `TrainConfig`'s defaults, and the name is the file's. `routing` is a design's name,
    or a table of a `design` and changed fields. InputError for a file that cannot be read, and for wrong
    fields or values; only a `run.json` that training wrote may have unknown fields.
    """
    values = read_values(path)
    if "corpus_digest" in values:
        return from_json(TrainConfig, values, path)
    try:
        return run_of_values(values, recipe, path.stem)
    except (InputError, ValueError, TypeError) as error:
        reason = " ".join(str(error).removeprefix("--").split())
        raise InputError(f"{path}: {reason}") from error


def run_of_values(values: Mapping[str, Any], recipe: Callable[[str], TrainConfig], name: str) -> TrainConfig:
    """The run of a file's fields, called `name` if they name no `recipe`; see `read_run_file`.

    InputError, ValueError or TypeError for wrong fields or values.
    """
    if not values.keys() & {"recipe", "routing"}:
        raise InputError("routing is missing; name a design of `loriini designs`, or a recipe")
    base = recipe(str(values["recipe"])) if "recipe" in values else TrainConfig(name, DESIGNS["dense"])
    run: TrainConfig = with_values(base, {name: values[name] for name in values if name != "recipe"})
    routing = values.get("routing", {})
    named = isinstance(routing, str) or "design" in routing  # not as a `run.json` has it
    if named and not (run.is_mixture or run.routing.constant_gates):
        raise InputError("routing: with one expert the model is dense; give num_experts above 1 in [model]")
    return run


def read_values(path: Path) -> dict[str, Any]:
    """The fields that a JSON or TOML file gives. InputError for a file that cannot be read."""
    try:
        values = READERS[path.suffix](path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not {path.suffix[1:].upper()} ({reason}); correct it") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: not the fields of a run; see `loriini train --help`")
    return values


def as_run(value: Any, source: str) -> TrainConfig:
    """A run, or the run that a function without arguments returns; InputError for anything else."""
    try:
        run = value() if callable(value) else value
    except Exception as error:
        raise InputError(f"{source}: fails ({type(error).__name__}: {error}); correct it") from error
    if not isinstance(run, TrainConfig):
        raise InputError(
            f"{source}: is a {type(run).__name__}; it must be a TrainConfig or a function returning one"
        )
    return run
