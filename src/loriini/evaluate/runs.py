"""Held-out perplexity of one trained model, or of several on the same tokens."""

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from loriini.common.errors import InputError
from loriini.common.folders import model_folder
from loriini.common.progress import inform, warn
from loriini.data.prepare.overlap import warn_of_overlap
from loriini.data.read.document import Document
from loriini.data.read.read import read_documents
from loriini.data.read.records import Fields, ReadOptions
from loriini.evaluate.heldout import (
    HeldOut,
    check_domains,
    check_lengths,
    documents_of,
    heldout_digest,
    tokenize_by_domain,
)
from loriini.evaluate.intervals import differences_by_domain
from loriini.evaluate.perplexity import check_routing, counts_first_segment, evaluate
from loriini.evaluate.settings import EvaluationSettings, RouterFree
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.generate.prompts import check_ids
from loriini.model.weights.conversion import router_free
from loriini.model.weights.loading import check_finite, load_config, load_model, tokenizer_in
from loriini.model.weights.run_record import training_of
from loriini.routing import causality_warning

ENOUGH = 10
"""With fewer documents in a domain, a warning says that the interval of a difference says little."""


@dataclass(frozen=True)
class ScoredModel:
    """What scoring a model depends on besides its weights; the model need not be trained yet."""

    run: Path
    config: LoriiniConfig
    tokenizer: Path
    length: int
    """Tokens of an instance in training."""
    corpus: Sequence[Path]

    @classmethod
    def from_run(cls, run: Path) -> "ScoredModel":
        config, trained = load_config(run), training_of(run)
        corpus = [Path(folder) for folder in trained.corpus or ()]
        return cls(run, config, model_folder(run), trained.context(config), corpus)


SharedHeldout = tuple[EvaluationSettings, Mapping[str, HeldOut]]
"""Settings with `length` and `skip` set, and the held-out text tokenized by them."""


def without_weights(config: LoriiniConfig) -> LoriiniForCausalLM:
    """A model on the meta device, with a copy of this config: enough to see what its design admits."""
    with torch.device("meta"):
        return LoriiniForCausalLM(deepcopy(config))


def remove_routers(model: LoriiniForCausalLM, how: RouterFree) -> None:
    """Remove the routers of a model, in place. InputError where its design does not admit it."""
    try:
        router_free(model, how.node, int(how.norm) if how.norm.isdigit() else how.norm, how.gates)
    except ValueError as error:
        raise InputError(f"--router-free {how}: {error}") from error


def read_heldout(settings: EvaluationSettings) -> list[Document]:
    """The held-out documents of the settings. InputError if they cannot be read."""
    fields = Fields(text=settings.text_field, domain=settings.domain_field)
    return list(read_documents(settings.documents, ReadOptions(fields, settings.on_error)))


def evaluate_runs(runs: Sequence[Path], settings: EvaluationSettings) -> list[dict[str, Any]]:
    """The evaluation of each run, in the order given, all on the same tokens with the same `skip`.

    With several runs, each result names its `run`, and those after the first have a `difference` from the
    first: relative differences of perplexity with their intervals, by domain and over `all`. One model is in
    memory at a time. InputError for different tokenizers, since perplexities cannot be compared then, and for
    a run that is given twice.
    """
    check_distinct(runs)
    settings, heldout = shared_heldout(list(map(ScoredModel.from_run, runs)), settings)
    if len(runs) == 1:
        results = [evaluate_on(runs[0], heldout, settings)]
    else:
        warn_of_unequal_tokens(runs)
        results = [
            {"run": str(run), **evaluate_on(run, heldout, settings, f"run {i} of {len(runs)}: {run}")}
            for i, run in enumerate(runs, 1)
        ]
    for run, result in zip(runs, results, strict=True):
        for domain, perplexity in result["perplexity"].items():
            check_finite(torch.tensor(perplexity), f"{run}: the losses on domain {domain!r}")
    losses = [result.pop("instance_losses") for result in results]
    tokens = [result.pop("instance_tokens") for result in results]
    for result, of_run in zip(results[1:], losses[1:], strict=True):
        found = differences_by_domain(losses[0], of_run, documents_of(heldout), tokens[0])  # the same for all
        result["difference"] = {domain: difference.to_dict() for domain, difference in found.items()}
    return results


def check_distinct(runs: Sequence[Path]) -> None:
    """InputError for a run that is given twice, however its path is written."""
    for i, run in enumerate(runs):
        if other := next((other for other in runs[:i] if other.resolve() == run.resolve()), None):
            raise InputError(
                f"{run}: given twice{f', also as {other}' if other != run else ''}; give it once"
            )


def warn_of_unequal_tokens(runs: Sequence[Path]) -> None:
    """Warn if runs were trained on different numbers of tokens; models that record none are ignored."""
    read = {run: tokens for run in runs if (tokens := training_of(run).tokens)}
    if len(set(read.values())) > 1:
        listed = ", ".join(f"{run} {tokens:,}" for run, tokens in read.items())
        warn(
            f"the runs were trained on different numbers of tokens, which their difference includes: {listed}"
        )


def shared_heldout(models: Sequence[ScoredModel], settings: EvaluationSettings) -> SharedHeldout:
    """Settings with a length and `skip` that fit all models, and the held-out text as instances for all.

    InputError if the models tokenize the documents differently, if a domain's instances are too short for
    `skip`, and if a domain has a reserved name.
    """
    length = settings.length or min(model.length for model in models)
    longest = max(model.config.first_segment_length for model in models)
    skip = longest if settings.skip is None else settings.skip
    settings = replace(settings, length=length, skip=skip)
    for model in models:
        check_model(model, length, skip, settings)
    documents = read_heldout(settings)
    heldout = _same_tokens(models, documents, length, settings)
    check_domains(heldout)
    check_lengths(heldout, skip)
    tell_of_short_documents(heldout, skip)
    if len(models) > 1:
        warn_of_few_documents(heldout, skip)
    warn_of_overlap(dict.fromkeys(corpus for model in models for corpus in model.corpus), documents)
    return settings, heldout


def check_model(model: ScoredModel, length: int, skip: int, settings: EvaluationSettings) -> None:
    """InputError for settings that a model does not admit; warn of settings that raise or lower its loss."""
    run, config = model.run, model.config
    if config.block == "gpt2" and length > config.max_position_embeddings:
        raise InputError(
            f"--length {length}: {run} has learned positions up to {config.max_position_embeddings}; "
            "give no more"
        )
    if model.length < length:
        warn(
            f"--length {length}: {run} was trained on {model.length} tokens; it has not seen the "
            "positions after them"
        )
    check_routing(config, settings.routing, skip)
    if settings.router_free:
        try:
            remove_routers(without_weights(config), settings.router_free)
        except InputError as error:
            raise InputError(f"{run}: {error}") from error
    if settings.routing == "training" and counts_first_segment(config, skip):
        warn(
            f"--skip {skip}: the loss of {run} counts tokens of segment 1, which is routed by itself; it "
            f"compares with other models' from --skip {config.first_segment_length} on"
        )


def _same_tokens(
    models: Sequence[ScoredModel], documents: Sequence[Document], length: int, settings: EvaluationSettings
) -> dict[str, HeldOut]:
    """The documents as instances. InputError if these are not the same for every model."""
    first, heldout = models[0].run, dict[str, HeldOut]()
    # trainings on one corpus share its tokenizer
    distinct = {(model.tokenizer, *(model.config.label_names or ())): model for model in models}
    for model in distinct.values():
        tokenizer, names = tokenizer_in(model.tokenizer), model.config.label_names
        own = tokenize_by_domain(documents, tokenizer, length, settings.instances, names, settings.contexts)
        heldout = heldout or own
        if heldout_digest(own) != heldout_digest(heldout):
            raise InputError(
                f"{model.run}: its tokenizer is not that of {first}, so their perplexities do not compare; "
                "evaluate each by itself with the same --skip and --length, and compare bits_per_byte_counted"
            )
    return heldout


def tell_of_short_documents(heldout: Mapping[str, HeldOut], skip: int) -> None:
    """Say how many documents have no prediction that counts."""
    counts = ((domain, text.too_short(skip)) for domain, text in heldout.items())
    if short := ", ".join(f"{domain} ({count:,})" for domain, count in counts if count):
        inform(
            f"held-out documents of at most {skip} predicted tokens, which perplexity leaves out and only "
            f"perplexity_all counts: {short}"
        )


def warn_of_few_documents(heldout: Mapping[str, HeldOut], skip: int) -> None:
    """Warn of domains with fewer than ENOUGH documents that count, whose intervals say little."""
    counts = ((domain, text.counted_documents(skip)) for domain, text in heldout.items())
    if few := ", ".join(f"{domain} ({count})" for domain, count in counts if count < ENOUGH):
        warn(
            f"few held-out documents, of which an interval says little: {few}; give at least {ENOUGH}, or "
            "raise --instances"
        )


def warn_of_conditions(run: Path, config: LoriiniConfig, settings: EvaluationSettings) -> None:
    """Warn if documents are strung together that training kept apart, and if the model is not causal."""
    if training_of(run).document_mask and settings.contexts == "strung":
        warn(
            f"{run} was trained with document_mask, and here its documents attend to those before them; "
            "--contexts documents keeps them apart"
        )
    warning = causality_warning(config.design)
    if warning and settings.routing != "prompt":
        warn(f"{run}: {warning}")


def evaluate_on(
    run: Path, heldout: Mapping[str, HeldOut], settings: EvaluationSettings, title: str = "evaluation"
) -> dict[str, Any]:
    """Load and `evaluate` a run's model; losses need not be finite. `title` names the progress display.

    The result also has the text's `contexts`, the `seconds` of the evaluation without loading the model, and
    `router_free` if routers are replaced.
    """
    model, _ = load_model(run, settings.device)
    for text in heldout.values():
        check_ids(torch.cat([*text.instances]), model)
    if settings.router_free:
        remove_routers(model, settings.router_free)
    warn_of_conditions(run, model.config, settings)
    started = time.perf_counter()
    results = evaluate(
        model,
        heldout,
        settings.skip,
        batch_size=settings.batch_size,
        precision=training_of(run).evaluated_in,
        routing=settings.routing,
        title=title,
    )
    results["contexts"] = settings.contexts
    results["seconds"] = round(time.perf_counter() - started, 3)
    if settings.router_free:
        results["router_free"] = str(settings.router_free)
    return results
