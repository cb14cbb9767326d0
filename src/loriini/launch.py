"""From a recipe and overrides to a finished run; resuming a run; estimating one."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from loriini.errors import InputError
from loriini.estimate.estimate import Estimate, estimate
from loriini.estimate.memory import GpuCluster
from loriini.hardware import autocast
from loriini.model import LoriiniForCausalLM
from loriini.parallel.mesh import on_first_rank, process_group, world_size
from loriini.recipes import RECIPES, VOCABULARY
from loriini.train.corpora import TrainingCorpus, read_corpora, small_corpus
from loriini.train.loop import train
from loriini.train.measures import Measure
from loriini.train.override import override
from loriini.train.run import RUN, Run, read_run
from loriini.train.watch import check_sinks


def recipe(name: str, overrides: Sequence[str]) -> Run:
    """The run of a recipe with overrides; InputError for an unknown recipe or a wrong override."""
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
    with process_group():
        small = out.parent / f"tiny-corpus-{run.length}"
        corpora = corpora or [on_first_rank(lambda: small_corpus(small, run.length))]
        run = replace(run, corpus=tuple(path.resolve() for path in corpora))
        return train_run(run, out, minutes)


def resume(out: Path, overrides: Sequence[str] = (), minutes: float = math.inf) -> Path:
    """Resume the run in `out`; overrides may change only what leaves its training unchanged."""
    path = out / RUN
    if not path.exists():
        raise InputError(f"{out}: no run to resume here (no {RUN}); start one with `loriini train RECIPE`")
    return train_run(override(read_run(path)[0], overrides), out, minutes)


def train_run(run: Run, out: Path, minutes: float = math.inf) -> Path:
    """Train a run on its corpora, with the measurements that it asks for."""
    corpus = read_corpora(run.corpus, run.corpus_weights)
    run.check(run.label_names(corpus.instances), world_size())
    measured = () if (out / "model").exists() else tuple(measures(run, corpus))
    return train(run, corpus, out, measured, minutes)


def dry_run(
    name: str, overrides: Sequence[str], cluster: GpuCluster, vocab_size: int | None = None
) -> Estimate:
    """The estimate of a recipe, by default with its paper's vocabulary."""
    run = recipe(name, overrides)
    default = VOCABULARY.get(run.model.block, VOCABULARY["llama"])
    return estimate(run, default if vocab_size is None else vocab_size, cluster)


def measures(run: Run, corpus: TrainingCorpus) -> Iterator[Measure]:
    """The measurements that a run asks for; InputError for held-out documents that cannot be used."""
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
        # the dense phase skips the mixture's segment 1 too, so that all steps are comparable
        skip = first_segment(config) if settings.skip is None else settings.skip
        check_lengths(texts, skip)

        def perplexity(model: LoriiniForCausalLM) -> dict[str, Any]:
            measured = evaluate(model, texts, skip, precision=run.precision, shown=False)
            by_domain = measured["perplexity"]
            return {**measured, "mean_perplexity": sum(by_domain.values()) / len(by_domain)}

        yield Measure("evaluation.jsonl", settings.every, perplexity, score="mean_perplexity")
    if settings.sample_every:
        prompt, label = settings.prompt, next(iter(names), None)

        def sample(model: LoriiniForCausalLM) -> dict[str, Any]:
            with autocast(run.precision):  # shards are gathered in the dtype of computation
                text = continue_text(model, tokenizer, prompt, settings.sample_tokens, label=label)
            return {"prompt": prompt, "text": text}

        yield Measure("samples.jsonl", settings.sample_every, sample)
