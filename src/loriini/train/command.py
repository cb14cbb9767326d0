"""A recipe from the command line to a finished run: overrides, corpora, resuming."""

import json
import types
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from loriini.data.artifact import digest
from loriini.data.batches import Joined
from loriini.data.local_text import standard_library
from loriini.data.prepare import PrepareSettings, open_corpus, prepare_documents
from loriini.errors import InputError
from loriini.recipes import RECIPES
from loriini.train.loop import Corpus, train
from loriini.train.run import Run

Config = TypeVar("Config")


def train_recipe(name: str, out: Path, corpora: Sequence[Path], overrides: Sequence[str]) -> Path:
    """Train a recipe into `out`; InputError for an unknown one, a wrong override or an unfit corpus."""
    if name not in RECIPES:
        raise InputError(f"no recipe is named {name!r}; there are: {', '.join(RECIPES)}")
    run = override(RECIPES[name](), overrides)
    if not corpora and not name.startswith("tiny-"):
        raise InputError(f"recipe {name} needs a corpus: make one with `loriini prepare`, give --corpus DIR")
    corpora = corpora or [small_corpus(out.parent / f"tiny-corpus-{run.length}", run.length)]
    run = replace(run, corpus=tuple(path.resolve() for path in corpora))
    return train(run, read_corpora(run.corpus), out)


def resume(out: Path) -> Path:
    """Go on with the run in `out`."""
    path = out / "run.json"
    if not path.exists():
        raise InputError(f"{out}: no run to resume here (no run.json); start one with `loriini train RECIPE`")
    run = Run.from_dict(json.loads(path.read_text()))
    return train(run, read_corpora(run.corpus), out)


def read_corpora(paths: Sequence[Path]) -> Corpus:
    """One or several prepared corpora as one; InputError when their tokenizers or lengths are different."""
    opened = [open_corpus(path) for path in paths]
    instances = tuple(corpus.instances for corpus in opened)
    files = [corpus.manifest["stages"] for corpus in opened]
    tokenizers = {digest(stages["tokenizer"]["files"]) for stages in files}
    if len(tokenizers) > 1:
        listed = ", ".join(map(str, paths))
        raise InputError(f"{listed}: made with different tokenizers; prepare them with the same --tokenizer")
    lengths = {part.length for part in instances}
    if len(lengths) > 1:
        listed = ", ".join(f"{path}: {part.length}" for path, part in zip(paths, instances, strict=True))
        raise InputError(
            f"cut into instances of different lengths ({listed}); prepare them with one --length"
        )
    return Corpus(
        instances=instances[0] if len(instances) == 1 else Joined(instances),
        vocab_size=instances[0].vocab_size,
        eos_token_id=instances[0].eos_token_id,
        digest=digest([stages["instances"]["files"] for stages in files]),
        tokenizer=opened[0].tokenizer,
    )


def small_corpus(folder: Path, length: int) -> Path:
    """A small corpus of the Python standard library's text, for the recipes that need none given."""
    documents = standard_library()
    settings = PrepareSettings(tokenizer="bpe:1024", length=length, order="similar")
    identity = {"standard library": digest([d.id for d in documents])}
    return prepare_documents(folder, lambda skipped: documents, identity, settings).folder


def override(config: Config, arguments: Sequence[str]) -> Config:
    """A frozen dataclass with `--dotted.name value` pairs applied; InputError names a wrong one."""
    pairs = [part for a in arguments for part in (a.split("=", 1) if a.startswith("--") else [a])]
    if len(pairs) % 2:
        raise InputError(f"{pairs[-1]} has no value; overrides come in pairs, --model.num_experts 8")
    for flag, text in zip(pairs[::2], pairs[1::2], strict=True):
        if not flag.startswith("--"):
            raise InputError(f"unexpected argument {flag!r}; overrides look like --model.num_experts 8")
        path = flag.removeprefix("--").replace("-", "_").split(".")
        try:
            config = _set(config, path, text)
        except (ValueError, TypeError) as error:
            raise InputError(f"{flag} {text}: {error}") from error
    return config


def _set(config: Any, path: Sequence[str], text: str) -> Any:
    name, *rest = path
    names = [field.name for field in fields(config)]
    if name not in names:
        raise ValueError(f"there is no {name!r} here; there are: {', '.join(names)}")
    value = getattr(config, name)
    if rest:
        if not is_dataclass(value):
            raise ValueError(f"{name!r} has no parts")
        return replace(config, **{name: _set(value, rest, text)})
    return replace(config, **{name: _parse(text, get_type_hints(type(config))[name])})


def _parse(text: str, kind: Any) -> Any:
    """Text as a value of a field's type."""
    origin = get_origin(kind)
    if origin is Literal:
        for choice in get_args(kind):
            if str(choice) == text:
                return choice
        raise ValueError(f"it is one of: {', '.join(map(str, get_args(kind)))}")
    if origin is tuple:
        kinds, parts = get_args(kind), text.split(",")
        if kinds[-1] is not ... and len(parts) != len(kinds):
            raise ValueError(f"it takes {len(kinds)} values with commas between them")
        return tuple(_parse(part, kinds[0]) for part in parts)
    if origin in (Union, types.UnionType):
        return None if text == "none" else _parse(text, get_args(kind)[0])
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError("it is one of: true, false")
        return text == "true"
    if is_dataclass(kind):
        raise ValueError("it has parts; set one of them")
    return kind(text)
