"""A recipe from the command line to a finished run, and a run that goes on."""

import json
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from loriini.errors import InputError
from loriini.recipes import RECIPES
from loriini.train.corpora import read_corpora, small_corpus
from loriini.train.loop import train
from loriini.train.override import override
from loriini.train.parallel import once, processes, world_size
from loriini.train.run import Run


def train_recipe(name: str, out: Path, corpora: Sequence[Path], overrides: Sequence[str]) -> Path:
    """Train a recipe into `out`; InputError for an unknown one, a wrong override or an unfit corpus."""
    if name not in RECIPES:
        alike = ", ".join(get_close_matches(name, RECIPES))
        hint = f"alike are {alike}; " if alike else ""
        raise InputError(f"no recipe is named {name!r}; {hint}`loriini recipes` lists them all")
    run = override(RECIPES[name](), overrides)
    if not corpora and not name.startswith("tiny-"):
        raise InputError(f"recipe {name} needs a corpus: make one with `loriini prepare`, give --corpus DIR")
    run.check(processes=world_size())
    with processes():
        small = out.parent / f"tiny-corpus-{run.length}"
        corpora = corpora or [once(lambda: small_corpus(small, run.length))]
        run = replace(run, corpus=tuple(path.resolve() for path in corpora))
        return train(run, read_corpora(run.corpus, run.corpus_weights), out)


def resume(out: Path, overrides: Sequence[str] = ()) -> Path:
    """Go on with the run in `out`; overrides may change how it is spread over processes, nothing else."""
    path = out / "run.json"
    if not path.exists():
        raise InputError(f"{out}: no run to resume here (no run.json); start one with `loriini train RECIPE`")
    run = override(Run.from_dict(json.loads(path.read_text())), overrides)
    return train(run, read_corpora(run.corpus, run.corpus_weights), out)
