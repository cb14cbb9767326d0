"""What a run measures while it trains: perplexity of held-out documents, and samples."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerBase

from loriini.common.hardware import autocast
from loriini.data.prepare.overlap import warn_of_overlap
from loriini.data.read import ReadOptions, read_documents
from loriini.evaluate.heldout import HeldOut, check_lengths, heldout_digest, tokenize_by_domain
from loriini.evaluate.perplexity import evaluate
from loriini.evaluate.samples import Generation, check_room, continue_text
from loriini.model import LoriiniForCausalLM
from loriini.model.weights.loading import tokenizer_in
from loriini.parallel.mesh import on_first_rank
from loriini.train.config import TrainConfig
from loriini.train.corpora import TrainingCorpus, model_config
from loriini.train.measures import Measure
from loriini.train.records.metrics import EVALUATION, SAMPLES


def measures(run: TrainConfig, corpus: TrainingCorpus) -> list[Measure]:
    """The measurements that a run asks for; InputError for held-out documents that cannot be used."""
    tokenizer = tokenizer_in(corpus.tokenizer)
    asked = []
    if run.evaluate.heldout:
        asked.append(perplexity_measure(run, corpus, tokenizer))
    if run.evaluate.sample_every:
        config = model_config(run, corpus)
        how = Generation(run.evaluate.sample_tokens, label=next(iter(config.label_names or ()), None))
        check_room(config, tokenizer, run.evaluate.prompt, how, "--evaluate.sample_tokens")
        sample = partial(_sample, run, tokenizer, how)
        asked.append(Measure(SAMPLES, run.evaluate.sample_every, sample))
    return asked


def perplexity_measure(
    run: TrainConfig, corpus: TrainingCorpus, tokenizer: PreTrainedTokenizerBase
) -> Measure:
    """Perplexity of the held-out documents of a run, by domain; its score is the mean over domains."""
    settings, config = run.evaluate, model_config(run, corpus)
    documents = list(read_documents(settings.heldout, ReadOptions(on_error=settings.on_error)))
    texts = tokenize_by_domain(
        documents, tokenizer, run.length, settings.instances, config.label_names or None
    )
    # the dense warm-up skips the mixture's segment 1 too, so that all steps are comparable
    skip = config.first_segment_length if settings.skip is None else settings.skip
    check_lengths(texts, skip, run.length, "--evaluate.skip", run.document_mask)
    on_first_rank(lambda: warn_of_overlap(run.corpus, documents))
    perplexity = partial(_perplexity, run, texts, skip)
    return Measure(
        EVALUATION, settings.every, perplexity, score="mean_perplexity", digest=heldout_digest(texts)
    )


def _perplexity(
    run: TrainConfig, texts: Mapping[str, HeldOut], skip: int, model: LoriiniForCausalLM
) -> dict[str, Any]:
    measured = evaluate(
        model, texts, skip, precision=run.precision, shown=False, document_mask=run.document_mask
    )
    for of_instances in ("instance_losses", "instance_tokens"):  # too much to keep of every evaluation
        measured.pop(of_instances, None)
    by_domain = measured["perplexity"]
    return {**measured, "mean_perplexity": sum(by_domain.values()) / len(by_domain)}


def _sample(
    run: TrainConfig, tokenizer: PreTrainedTokenizerBase, how: Generation, model: LoriiniForCausalLM
) -> dict[str, Any]:
    prompt = run.evaluate.prompt
    with autocast(run.precision):  # shards are gathered in the dtype of computation
        return {"prompt": prompt, "text": continue_text(model, tokenizer, prompt, how)}
