"""A recipe from the command line to a finished run, and a run that goes on."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from loriini.errors import InputError
from loriini.estimate.estimate import Cluster, Estimate, estimate
from loriini.hardware import autocast
from loriini.model import LoriiniForCausalLM
from loriini.parallel.mesh import once, processes, world_size
from loriini.recipes import RECIPES, VOCABULARY
from loriini.train.corpora import read_corpora, small_corpus
from loriini.train.loop import Corpus, train
from loriini.train.measures import Measure
from loriini.train.override import override
from loriini.train.run import RUN, Run, read_run
from loriini.train.watch import check_sinks


def recipe(name: str, overrides: Sequence[str]) -> Run:
    """The run of a recipe, changed; InputError for an unknown one and a wrong override."""
    if name not in RECIPES:
        alike = ", ".join(get_close_matches(name, RECIPES))
        hint = f"alike are {alike}; " if alike else ""
        raise InputError(f"no recipe is named {name!r}; {hint}`loriini recipes` lists them all")
    return override(RECIPES[name], overrides)


def train_recipe(
    name: str,
    out: Path,
    corpora: Sequence[Path],
    overrides: Sequence[str],
    heldout: Sequence[Path] = (),
    minutes: float = math.inf,
) -> Path:
    """Train a recipe into `out`; InputError for an unknown one, a wrong override or an unfit corpus."""
    run = recipe(name, overrides)
    if not corpora and not name.startswith("tiny-"):
        raise InputError(f"recipe {name} needs a corpus: make one with `loriini prepare`, give --corpus DIR")
    run.check(processes=world_size())
    check_sinks(run.watch.sinks)
    if heldout:
        paths = tuple(path.resolve() for path in heldout)
        run = replace(run, evaluate=replace(run.evaluate, heldout=paths))
    with processes():
        small = out.parent / f"tiny-corpus-{run.length}"
        corpora = corpora or [once(lambda: small_corpus(small, run.length))]
        run = replace(run, corpus=tuple(path.resolve() for path in corpora))
        return train_run(run, out, minutes)


def resume(out: Path, overrides: Sequence[str] = (), minutes: float = math.inf) -> Path:
    """Go on with the run in `out`; overrides may change only what leaves its training as it is."""
    path = out / RUN
    if not path.exists():
        raise InputError(f"{out}: no run to resume here (no {RUN}); start one with `loriini train RECIPE`")
    return train_run(override(read_run(path)[0], overrides), out, minutes)


def train_run(run: Run, out: Path, minutes: float = math.inf) -> Path:
    """Train a run on its corpus, and measure of it what it asks for."""
    corpus = read_corpora(run.corpus, run.corpus_weights)
    run.check(run.label_names(corpus.instances), world_size())
    measured = () if (out / "model").exists() else tuple(measures(run, corpus))
    return train(run, corpus, out, measured, minutes)


def dry_run(name: str, overrides: Sequence[str], cluster: Cluster, vocab_size: int | None = None) -> Estimate:
    """The estimate of a recipe; without a `vocab_size`, with that of its paper."""
    run = recipe(name, overrides)
    default = VOCABULARY["gpt2" if run.model.block == "gpt2" else "llama"]
    return estimate(run, default if vocab_size is None else vocab_size, cluster)


def measures(run: Run, corpus: Corpus) -> Iterator[Measure]:
    """What a run measures of itself; InputError for held-out documents that cannot be evaluated on."""
    from transformers import AutoTokenizer

    from loriini.evaluate.perplexity import check_lengths, evaluate, first_segment, tokenize_by_domain
    from loriini.evaluate.samples import continue_text
    from loriini.sources import read_documents

    settings, names = run.evaluate, run.label_names(corpus.instances)
    tokenizer = AutoTokenizer.from_pretrained(corpus.tokenizer)
    if settings.heldout:
        documents = read_documents(settings.heldout)
        texts = tokenize_by_domain(documents, tokenizer, run.length, settings.instances, names or None)
        config = run.config(corpus.vocab_size, corpus.eos_token_id, label_names=names)
        # the dense phase skips the mixture's segment 1 too, so that all steps compare
        skip = first_segment(config) if settings.skip is None else settings.skip
        check_lengths(texts, skip)

        def perplexity(model: LoriiniForCausalLM) -> dict[str, Any]:
            measured = evaluate(model, texts, skip, precision=run.precision, shown=False)
            by_domain = measured["perplexity"]
            return {**measured, "mean_perplexity": sum(by_domain.values()) / len(by_domain)}

        yield Measure("evaluation.jsonl", settings.every, perplexity, best_by="mean_perplexity")
    if settings.sample_every:
        prompt, label = settings.prompt, next(iter(names), None)

        def sample(model: LoriiniForCausalLM) -> dict[str, Any]:
            with autocast(run.precision):  # shards come together in what is computed in
                text = continue_text(model, tokenizer, prompt, settings.sample_tokens, label=label)
            return {"prompt": prompt, "text": text}

        yield Measure("samples.jsonl", settings.sample_every, sample)
