"""`loriini train RECIPE --help`: every override of a recipe, formatted as argparse formats options."""

import argparse
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loriini.train.overrides.names import Override


class RecipeHelp(argparse.Action):
    """`--help` that also lists the overrides of the recipe before it; without one, nothing is imported.

    The recipe may use extensions that are named before it.
    """

    def __init__(self, option_strings: list[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        name = namespace.recipe
        if name is None:
            overrides = (
                "overrides: `loriini train RECIPE --help` lists every --dotted.name VALUE of a recipe\n"
            )
        else:
            from loriini.train.launch import resolve_recipe
            from loriini.train.overrides.names import describe_overrides

            listed = format_overrides(describe_overrides(resolve_recipe(name, [])))
            overrides = f"overrides of {name}, each with its value in parentheses:\n\n{listed}"
        print(f"{parser.format_help()}\n{overrides}", end="")
        parser.exit()


def format_overrides(overrides: Iterable["Override"]) -> str:
    """Overrides as option groups, one for each part of a run."""
    options = argparse.ArgumentParser(add_help=False, usage=argparse.SUPPRESS)
    for part, members in groupby(overrides, key=lambda override: override.name.rpartition(".")[0]):
        group = options.add_argument_group(part or "run")
        for override in members:
            text = f"{override.meaning} ({override.default})".replace("%", "%%")
            group.add_argument(f"--{override.name}", metavar=override.type, help=text)
    return options.format_help()
