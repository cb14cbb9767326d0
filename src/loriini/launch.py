"""From a recipe and overrides to a finished run; resuming a run; estimating one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from loriini.errors import InputError
from loriini.estimate.estimate import Estimate, estimate
from loriini.estimate.memory import GpuCluster
from loriini.evaluate.perplexity import HeldOut, check_lengths, evaluate, first_segment, tokenize_by_domain
from loriini.evaluate.samples import Generation, continue_text
from loriini.hardware import autocast
from loriini.model import LoriiniForCausalLM
from loriini.parallel.mesh import on_first_rank, process_group, world_size
from loriini.recipes import RECIPES, VOCABULARY
from loriini.sources import read_documents
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
    """Train a recipe into `out` and return its `model/` folder.

    Without `corpora`, a tiny recipe prepares a small one beside `out`. Raises InputError for an unknown
    recipe, a wrong override and a corpus that does not fit.
    """
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
    measured = () if (out / "model").exists() else measures(run, corpus)
    return train(run, corpus, out, measured, minutes)


def dry_run(
    name: str, overrides: Sequence[str], cluster: GpuCluster, vocab_size: int | None = None
) -> Estimate:
    """The estimate of a recipe, by default with its paper's vocabulary."""
    run = recipe(name, overrides)
    default = VOCABULARY.get(run.model.block, VOCABULARY["llama"])
    return estimate(run, default if vocab_size is None else vocab_size, cluster)


def measures(run: Run, corpus: TrainingCorpus) -> list[Measure]:
    """The measurements that a run asks for; InputError for held-out documents that cannot be used."""
    tokenizer = AutoTokenizer.from_pretrained(corpus.tokenizer)
    asked = []
    if run.evaluate.heldout:
        asked.append(perplexity_measure(run, corpus, tokenizer))
    if run.evaluate.sample_every:
        label = next(iter(run.label_names(corpus.instances)), None)
        sample = partial(_sample, run, tokenizer, label)
        asked.append(Measure("samples.jsonl", run.evaluate.sample_every, sample))
    return asked


def perplexity_measure(run: Run, corpus: TrainingCorpus, tokenizer: PreTrainedTokenizerBase) -> Measure:
    """Perplexity of the held-out documents of a run, by domain; its score is the mean over domains."""
    settings, names = run.evaluate, run.label_names(corpus.instances)
    documents = read_documents(settings.heldout)
    texts = tokenize_by_domain(documents, tokenizer, run.length, settings.instances, names or None)
    config = run.config(corpus.vocab_size, corpus.eos_token_id, label_names=names)
    # the dense phase skips the mixture's segment 1 too, so that all steps are comparable
    skip = first_segment(config) if settings.skip is None else settings.skip
    check_lengths(texts, skip)
    perplexity = partial(_perplexity, run, texts, skip)
    return Measure("evaluation.jsonl", settings.every, perplexity, score="mean_perplexity")


def _perplexity(
    run: Run, texts: Mapping[str, HeldOut], skip: int, model: LoriiniForCausalLM
) -> dict[str, Any]:
    measured = evaluate(model, texts, skip, precision=run.precision, shown=False)
    by_domain = measured["perplexity"]
    return {**measured, "mean_perplexity": sum(by_domain.values()) / len(by_domain)}


def _sample(
    run: Run, tokenizer: PreTrainedTokenizerBase, label: str | None, model: LoriiniForCausalLM
) -> dict[str, Any]:
    prompt, how = run.evaluate.prompt, Generation(run.evaluate.sample_tokens, label=label)
    with autocast(run.precision):  # shards are gathered in the dtype of computation
        return {"prompt": prompt, "text": continue_text(model, tokenizer, prompt, how)}
