"""The command that trains a recipe, resumes a run, or estimates one."""

import argparse
import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from loriini.cli.arguments import output_folder
from loriini.cli.output import print_once
from loriini.common.errors import InputError
from loriini.common.folders import MANIFEST
from loriini.common.options import Option, refuse_given

if TYPE_CHECKING:
    from loriini.train.overrides.names import Override


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a recipe or the run of a file, resume a run, or estimate a run's memory and cost.

    Any other `--dotted.name VALUE` changes a setting of the run.
    """

    recipe: Annotated[str | None, Option("RECIPE", positional=True)] = None
    """A recipe of `loriini recipes`, or FILE.json or FILE.toml with a run's settings."""
    out: Annotated[Path | None, Option("RUN", parse=output_folder)] = None
    """The run's folder."""
    corpus: tuple[Path, ...] = ()
    """Corpora to train on (a tiny recipe prepares the standard library's text, next to RUN)."""
    init: Annotated[str | None, Option("MODEL")] = None
    """Start from the weights of a run, a checkpoint, a model's folder or a Hub id (ORG/NAME)."""
    resume: Annotated[Path | None, Option("RUN")] = None
    """Resume the run in this folder (`--corpus` and `--heldout` say where its text is now, if moved)."""
    heldout: tuple[str, ...] = ()
    """Documents to evaluate on while training, as for `loriini evaluate`."""
    on_error: Literal["stop", "skip"] | None = None
    """What to do with a flawed record of `--heldout` (stop)."""
    max_minutes: float | None = None
    """Save and stop after this time (none)."""
    dry_run: bool = False
    """Only estimate memory and computation; `--out` and `--corpus` are ignored."""
    gpus: int = 1
    """GPUs of the estimate."""
    memory: Annotated[str | None, Option("SIZE")] = None
    """Memory of each of these GPUs, such as 80GiB or 80GB."""
    vocab_size: int | None = None
    """Vocabulary of the estimate (the recipe's)."""
    json: bool = False
    """Print the estimate as JSON."""
    overrides: Annotated[tuple[str, ...], Option(rest=True)] = ()

    less_memory: ClassVar = "lower --micro_batch_size or --length, set --speed.activation_checkpointing true"
    resumes: ClassVar = True

    def run(self) -> None:
        minutes = math.inf if self.max_minutes is None else self.max_minutes
        if not minutes > 0:
            raise InputError(f"--max-minutes {minutes:g}: give more than 0")
        deadline = time.monotonic() + 60 * minutes  # from here, since reading text and models may take long
        self._refuse_unused()
        if self.dry_run:
            self._estimate()
            return
        if self.resume is None and not (self.recipe and self.out):
            raise InputError("give a recipe and --out RUN, or --resume RUN; see `loriini recipes`")
        if self.out and (self.out / MANIFEST).exists():
            raise InputError(f"--out {self.out}: holds a corpus; choose another folder")
        from loriini.train.launch import resume, train_recipe

        text: dict[str, Any] = {"corpora": self.corpus, "heldout": self.heldout}
        if self.resume:
            model = resume(self.resume, overrides=self.overrides, deadline=deadline, **text)
        else:
            assert self.recipe
            assert self.out
            model = train_recipe(
                self.recipe,
                self.out,
                self.corpus,
                self.overrides,
                heldout=self.heldout,
                deadline=deadline,
                init=self.init,
                on_error=self.on_error,
            )
        print_once(model)

    def _refuse_unused(self) -> None:
        if self.resume is not None:
            why = "--resume keeps the run as it is; leave this out"
            if self.recipe:
                raise InputError(f"{self.recipe}: {why}")
            refuse_given(self, ("out", "on_error", "init"), why)
        if self.dry_run:
            refuse_given(self, ("on_error", "max_minutes"), "--dry-run trains nothing; leave this out")
        else:
            why = "is only for estimates; add --dry-run or leave it out"
            refuse_given(self, ("gpus", "memory", "vocab_size", "json"), why)

    def _estimate(self) -> None:
        from loriini.cli.estimate_table import estimate_text
        from loriini.estimate.memory import parse_memory
        from loriini.train.launch import dry_run

        if not self.recipe:
            raise InputError("--dry-run needs a recipe; see `loriini recipes`")
        estimate = dry_run(
            self.recipe,
            self.overrides,
            self.gpus,
            None if self.memory is None else parse_memory(self.memory),
            vocab_size=self.vocab_size,
            init=self.init,
            heldout=self.heldout,
        )
        print(json.dumps(estimate.to_dict(), indent=1) if self.json else estimate_text(estimate))

    @staticmethod
    def more_help(given: Mapping[str, Any]) -> str:
        """The overrides of the recipe named before `--help`; extensions named there are loaded by then."""
        if "recipe" not in given:
            return "overrides: `loriini train RECIPE --help` lists every --dotted.name VALUE of a recipe\n"
        from loriini.train.launch import resolve_recipe
        from loriini.train.overrides.names import describe_overrides

        name = given["recipe"]
        listed = format_overrides(describe_overrides(resolve_recipe(name, [])))
        return f"overrides of {name}, each with its value in parentheses:\n\n{listed}"


def format_overrides(overrides: "Iterable[Override]") -> str:
    """Overrides formatted as argparse formats options, in one group for each section of a run."""
    options = argparse.ArgumentParser(add_help=False, usage=argparse.SUPPRESS)
    for part, members in groupby(overrides, key=lambda override: override.name.rpartition(".")[0]):
        group = options.add_argument_group(part or "run")
        for override in members:
            text = f"{override.meaning} ({override.default})".replace("%", "%%")
            group.add_argument(f"--{override.name}", metavar=override.type, help=text)
    return options.format_help()
