"""The commands that the report offers, to be copied as they are."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loriini.common.extension import extension_arguments
from loriini.quickstart.settings import Quickstart
from loriini.reporting import page as p
from loriini.reporting.page import Html
from loriini.routing import DESIGNS


def what_next(settings: Mapping[str, Any], folder: Path) -> Html:
    """Commands to run next, after the job with these settings in `folder`."""
    return p.items(
        p.join(p.code(command), " – ", meaning)
        for command, meaning in next_commands(settings, folder).items()
    )


def next_commands(settings: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Each command, and what it is for. They write to folders next to `folder`."""
    design = settings["design"]
    options = {
        "design": design,
        "size": settings["size"]["name"],
        "steps": settings["steps"],
        "seed": settings["seed"],
        "documents": settings["inputs"],
        **{name.replace("_", "-"): settings[name] for name in changed_reading(settings)},
    }

    beside = folder if folder.name.strip(".") else folder.resolve()  # `.` and `..` have no name

    def again(name: str, value: Any) -> str:
        changed = {**options, name: value}
        if name == "size":
            del changed["steps"]  # each size has its own
        words = [word for option, given in changed.items() if given != [] for word in _words(option, given)]
        return command("quickstart", *words, "--out", f"{beside}-{name}-{value}")

    run = str(folder / "runs" / design)
    expert_of = ["--label", min(settings["documents"]["train"])] if DESIGNS[design].scorer == "label" else []
    return {
        again("steps", 4 * options["steps"]): "train four times as long; experts differ more with time",
        again("seed", options["seed"] + 1): "train both models again with another seed",
        again("size", "medium" if options["size"] == "small" else "small"): "models of another size",
        again("design", "lory" if design == "mixtral" else "mixtral"): "another routing design",
        command("designs"): "list all designs and how they differ",
        command("generate", run, "--prompt", "The", *expert_of): "continue a text",
        "loriini recipes": "list the papers' models and small ones, ready to train",
    }


def command(*words: str) -> str:
    """A command of Loriini, with the extensions that this one has."""
    return shlex.join(["loriini", *words, *extension_arguments()])


def changed_reading(settings: Mapping[str, Any]) -> list[str]:
    """The settings of how documents are read that are not the default."""
    names = ("text_field", "domain_field", "on_error")
    return [name for name in names if settings[name] != getattr(Quickstart, name)]


def _words(option: str, value: Any) -> list[str]:
    return [f"--{option}", *map(str, value if isinstance(value, list) else [value])]
