"""Checks, choices and reading before a training starts, in a fixed order; a failed check is an InputError.

`check_settings` needs no text: it checks sections against each other and the processes, and overrides for an
effect. `preflight` then checks trackers, reads the corpora, checks the run against them and this machine's
memory, chooses what is `auto`, and reads held-out text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from loriini.common.checks import as_argument
from loriini.common.errors import InputError
from loriini.common.folders import RUN
from loriini.common.hardware import machine_memory, resolve_precision
from loriini.common.progress import inform, warn
from loriini.common.settings import UNKNOWN, settings_of
from loriini.data.prepare.overlap import warn_of_overlap
from loriini.data.read.read import read_documents
from loriini.data.read.records import ReadOptions
from loriini.estimate.choice import choose, memory_here
from loriini.estimate.memory import GIB, check_memory
from loriini.evaluate.heldout import HeldOut, check_lengths, heldout_digest, tokenize_by_domain
from loriini.evaluate.perplexity import evaluate
from loriini.model import LoriiniForCausalLM
from loriini.model.weights.loading import tokenizer_in
from loriini.parallel.mesh import on_first_rank, world_size
from loriini.train.config import AUTO, TrainConfig, read_run
from loriini.train.corpora import TrainingCorpus, model_config, read_corpora
from loriini.train.folder import check_length, has_model
from loriini.train.measures import Measure
from loriini.train.optimizer import A_MIXTURE
from loriini.train.overrides.names import setting_name
from loriini.train.records.trackers import check_trackers

FOR_ANY_DESIGN = "routing.segment_length"
"""Accepted even without effect, so that one command line serves several designs."""


def check_settings(run: TrainConfig, overridden: Iterable[str]) -> None:
    """InputError for settings that do not fit each other or the processes, and for overrides without effect.

    `overridden` are the flags of the command line, such as `--optimizer.warmup`.
    """
    run.check(processes=world_size())
    refuse_unused(run, overridden, world_size())


def preflight(run: TrainConfig, out: Path) -> tuple[TrainConfig, TrainingCorpus, Measure | None]:
    """The run with a choice for every `auto`, its corpus, and its measure (None: none, or finished).

    Called by all processes. InputError for a corpus, held-out text or a size that does not fit.
    """
    check_trackers(run.watch.trackers)
    corpus = read_corpora(run.corpus, run.corpus_weights)
    run.check(run.label_names(corpus.instances), world_size())
    check_sizes(run, corpus)
    run = on_first_rank(partial(without_auto, run, corpus, out))
    finished = on_first_rank(lambda: has_model(out))  # all processes measure, or none
    return run, corpus, None if finished else perplexity_measure(run, corpus)


def refuse_unused(run: TrainConfig, overridden: Iterable[str], processes: int) -> None:
    """InputError for an override that has no effect on `run` in this many processes."""
    for flag in overridden:
        if needed := unmet_need(run, setting_name(flag), processes):
            raise InputError(f"{flag} has no effect here: it needs {needed}; leave it out")


def unmet_need(run: TrainConfig, name: str, processes: int = 1) -> str | None:
    """What a setting needs to have an effect on this run; None if it has one."""
    if name == FOR_ANY_DESIGN:
        return None
    section, _, field = name.rpartition(".")
    if section == "parallel" and processes == 1:
        value = getattr(run.parallel, field)
        if value is True or value not in (0, 1):
            return "several processes, started by torchrun"
    if name == "parallel.reduce_once" and run.parallel.reduce_once and run.micro_batch_size != AUTO:
        share = run.batch_size // processes
        if run.instances_at_once(share) == share:
            return "several micro-batches, --micro_batch_size below a process's share of --batch_size"
    of_design = name.startswith("routing")
    if of_design and not run.is_mixture:
        return None if name == "routing" and run.routing.constant_gates else A_MIXTURE.text
    needs = settings_of(TrainConfig).get(name, UNKNOWN).needs
    if needs is None or needs.met(run.routing if of_design else run):
        return None
    return needs.text


def check_sizes(run: TrainConfig, corpus: TrainingCorpus) -> None:
    """InputError if this machine cannot hold the run, or the embedding has too few rows for the tokens."""
    rows = run.model.vocab_size
    if run.init is None and rows is not None and rows < corpus.vocab_size:  # else the tokenizers are compared
        raise InputError(
            f"--model.vocab_size {rows}: the corpus has {corpus.vocab_size} tokens; give at least as many"
        )
    memory = memory_here()
    here = "this machine" if memory == machine_memory() else "each process of this machine"
    check_memory(run, model_config(run, corpus), world_size(), memory, here)


def without_auto(run: TrainConfig, corpus: TrainingCorpus, out: Path) -> TrainConfig:
    """The run with values for `auto`: those of the run in `out`, if any, else chosen for this machine."""
    if (out / RUN).exists():
        run = run.fill_auto_from(read_run(out / RUN)[0])
    run = replace(run, precision=resolve_precision(run.precision))
    if not run.has_auto_size:
        return run
    check_length(run, corpus)
    memory = memory_here()
    run, total = choose(run, model_config(run, corpus), world_size(), memory)
    if total is not None:
        size, again = run.micro_batch_size, as_argument(run.model.recompute_merge)
        text = f"micro_batch_size {size}, recompute_merge {again}: {total / GIB:,.1f} GiB estimated"
        (inform if total <= memory else warn)(f"{text} of {memory / GIB:,.1f}")
    return run


def perplexity_measure(run: TrainConfig, corpus: TrainingCorpus) -> Measure | None:
    """Perplexity of a run's held-out documents, if any, by domain.

    InputError for held-out documents that cannot be used.
    """
    if not run.evaluate.heldout:
        return None
    settings, config, tokenizer = run.evaluate, model_config(run, corpus), tokenizer_in(corpus.tokenizer)
    documents = list(read_documents(settings.heldout, ReadOptions(on_error=settings.on_error)))
    how = (run.length, settings.instances, config.label_names or None, settings.contexts)
    texts = tokenize_by_domain(documents, tokenizer, *how)
    # the dense warm-up skips the mixture's segment 1 too, so that all steps are comparable
    skip = config.first_segment_length if settings.skip is None else settings.skip
    check_lengths(texts, skip, "lower --evaluate.skip, choose --evaluate.contexts strung")
    on_first_rank(lambda: warn_of_overlap(run.corpus, documents))
    return Measure(settings.every, partial(_perplexity, run, texts, skip), heldout_digest(texts))


def _perplexity(
    run: TrainConfig, texts: Mapping[str, HeldOut], skip: int, model: LoriiniForCausalLM
) -> dict[str, Any]:
    measured = evaluate(model, texts, skip, precision=run.precision, shown=False)
    for of_instances in ("instance_losses", "instance_tokens"):  # too much to keep of every evaluation
        del measured[of_instances]
    mean = fmean(measured["perplexity"].values())
    return {**measured, "contexts": run.evaluate.contexts, "mean_perplexity": mean}
