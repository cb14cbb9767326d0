"""Measurements of a trained run, evaluated as its row says: training, held-out loss, routes and questions.

A measure is a key of MEASURES. Each is computed once per run and way of evaluating, and kept as JSON; a run's
model is loaded once for all that are missing.

Axes: B questions, L tokens of a context and an answer.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from loriini.analyze.routes import routes_by_domain
from loriini.common.hardware import Precision
from loriini.common.json_file import read_or_make
from loriini.compare.measures import evaluation_key, training_measures
from loriini.compare.trainings import Training
from loriini.data.jobs.lock import folder_lock
from loriini.evaluate.heldout import HeldOut, documents_of
from loriini.evaluate.perplexity import evaluate, score_tokens
from loriini.evaluate.runs import remove_routers
from loriini.evaluate.settings import EvaluationRouting, RouterFree
from loriini.model import LoriiniForCausalLM
from loriini.model.generate.routing_inputs import prompt_routing, routing_inputs
from loriini.model.weights.loading import load_model
from loriini.model.weights.run_record import training_of
from loriini.papers.reproduce.plan import ItemTraining
from loriini.papers.reproduce.quantities import significant
from loriini.papers.reproduce.texts import LANGUAGES, MIXED, Texts
from loriini.reporting.curves import UTILISATION_WINDOW, Metrics, routed_steps, utilisation
from loriini.train.config import TrainConfig
from loriini.train.records.metrics import METRICS, read_records

POINTS = 60
"""The most points of a curve of the use of experts."""
ANSWER, CHOICES = 32, 4
"""Tokens of an answer, and answers to choose from."""
VERSION = 11
"""Version of the measures' definitions and files; what an earlier version measured is measured again."""
ROUTE_MEASURES = ("routes", "languages")
"""Measures of routes, which a dense model does not have."""
TextOfKind = Callable[[str], Mapping[str, HeldOut]]
"""Kind of `texts` → its held-out text in a model's tokens; the model may be trained on another kind."""
Load = Callable[[Path], tuple[LoriiniForCausalLM, Any]]
"""`load_model`, or a cache of it."""


@dataclass(frozen=True)
class LoadedModel:
    """A trained model, how it is routed, and the held-out text that it is measured on."""

    model: LoriiniForCausalLM
    routing: EvaluationRouting
    precision: Precision
    heldout: Mapping[str, HeldOut]
    of_kind: TextOfKind
    skip: int


def recorded_training(training: Training) -> dict[str, Any]:
    """`training_measures` and the use of experts over training, at most POINTS steps or windows.

    - `active`: share of experts active at least once in ten steps, by window and layer (Lory, appendix G.1);
      `units` is how many units a window routes.
    - `load`: share of choices, by step, layer and expert; `norms`: mean activation norms, in the same form.
    """
    measured = training_measures(training)
    if routed := routed_steps(read_records(training.folder / METRICS)):
        measured["active"] = active(training.run, routed, UTILISATION_WINDOW)
        for name, key in (("load", "load"), ("norms", "activation_norms")):
            recorded = thinned([m for m in routed if key in m])
            if recorded:
                measured[name] = {
                    "tokens": [m["tokens"] for m in recorded],
                    "values": [m[key] for m in recorded],
                }
    return measured


def active(run: TrainConfig, routed: Metrics, window: int) -> dict[str, Any]:
    """Share of experts active at least once in each window of steps, and the units that it routes."""
    ends, shares = utilisation(routed, window)
    unit = {"token": 1, "segment": run.routing.segment_length}.get(run.routing.unit, run.length)
    steps = min(window, len(routed))
    return {
        "tokens": thinned(ends.tolist()),
        "shares": thinned(shares.tolist()),
        "steps": steps,
        "units": steps * run.batch_size * (run.length // unit),
    }


def thinned(values: Sequence[Any]) -> list[Any]:
    """At most POINTS of the values, evenly spaced, the last among them."""
    kept = np.unique(np.linspace(0, len(values) - 1, min(POINTS, len(values))).round().astype(int))
    return [values[i] for i in kept]


def perplexity(loaded: LoadedModel) -> dict[str, Any]:
    """Perplexity by domain after the first `skip` tokens.

    `instance_losses` are those of `evaluate`, with six digits.
    """
    evaluation = evaluate(
        loaded.model,
        loaded.heldout,
        loaded.skip,
        precision=loaded.precision,
        routing=loaded.routing,
        shown=False,
    )
    losses = {
        domain: list(map(significant, values)) for domain, values in evaluation["instance_losses"].items()
    }
    kept = ("perplexity", "bits_per_byte", "tokens", "skip", "causality")
    return {**{key: evaluation[key] for key in kept}, "instance_losses": losses}


def routes(loaded: LoadedModel, kind: str = MIXED) -> dict[str, Any]:
    """Routes of a kind of text by domain, whatever text the run is trained on; see `Routes.to_dict`."""
    return routes_by_domain(loaded.model, loaded.of_kind(kind), loaded.precision).to_dict()


def languages(loaded: LoadedModel) -> dict[str, Any]:
    """Routes of text by language; empty if it shares domains with mixed text, whose domains are topics."""
    apart = loaded.of_kind(LANGUAGES).keys().isdisjoint(loaded.of_kind(MIXED))
    return routes(loaded, LANGUAGES) if apart else {}


@torch.no_grad()
def questions(loaded: LoadedModel) -> dict[str, Any]:
    """Which of four passages continues a held-out text, by domain.

    They are routed by the text before, their prompt, unless the model is routed by segment. The wrong ones
    are the same tokens of other instances of the domain, so chance is 1/4. The text before is one and a half
    segments long: shorter, and routing it by segment would be routing it by prompt.
    `accuracy` is the share of right choices, `log_likelihood` the right answers', in nats a token; `right`
    (1 or 0) and `log_likelihoods` are those of every question.
    """
    context = loaded.skip + loaded.skip // 2
    routing: EvaluationRouting = "prompt" if loaded.routing == "training" else loaded.routing
    measured = defaultdict[str, dict[str, Any]](dict)
    asked = 0
    for domain, text in loaded.heldout.items():
        ids_BL = torch.stack([*text.instances])[:, : context + ANSWER]
        if len(ids_BL) < CHOICES or ids_BL.shape[1] < context + ANSWER:
            continue
        scores = []
        for shift in range(CHOICES):
            asked_BL = torch.cat([ids_BL[:, :context], ids_BL.roll(shift, 0)[:, context:]], dim=1)
            prompts_B = torch.full((len(asked_BL),), context)
            inference = prompt_routing(loaded.model, routing, prompts_B)
            inputs = routing_inputs(loaded.model, domain, len(asked_BL), asked)
            losses_BL = score_tokens(loaded.model, asked_BL, loaded.precision, **inputs, **inference).loss
            scores.append(-losses_BL[:, context - 1 :].mean(1).double().cpu())
        asked += len(ids_BL)
        scores_BC = torch.stack(scores, dim=1)
        likelihoods_B = scores_BC[:, 0]
        right_B = (likelihoods_B[:, None] > scores_BC[:, 1:]).all(1)  # a tie is not right
        measured["accuracy"][domain] = right_B.double().mean().item()
        measured["log_likelihood"][domain] = likelihoods_B.mean().item()
        measured["questions"][domain] = len(ids_BL)
        measured["right"][domain] = right_B.int().tolist()
        measured["log_likelihoods"][domain] = list(map(significant, likelihoods_B.tolist()))
    return measured


MEASURES: dict[str, Callable[[LoadedModel], dict[str, Any]]] = {
    "heldout": perplexity,
    "routes": routes,
    "languages": languages,
    "questions": questions,
}


def measure_all(
    trainings: Sequence[ItemTraining], names: Sequence[str], texts: Texts, folder: Path
) -> list[tuple[ItemTraining, dict[str, Any]]]:
    """Each training with what `measure` finds, nothing for one that has not ended."""
    load = lru_cache(maxsize=1)(load_model)  # the rows of a model follow each other
    return [
        (training, measure(training, names, texts, folder, load) if training.is_done else {})
        for training in trainings
    ]


def measure(
    training: ItemTraining, names: Sequence[str], texts: Texts, folder: Path, load: Load
) -> dict[str, Any]:
    """What training recorded and, for a finished run, the named measures; those in `folder` are reused.

    They are of held-out text of the run's kind; `documents` has the document in which each instance begins.
    """
    found: dict[str, Any] = {"training": recorded_training(training)}
    if not training.run.is_mixture:
        names = [name for name in names if name not in ROUTE_MEASURES]
    if found["training"]["state"] != "finished" or not names:
        return found
    run, paper = training.folder, training.paper
    of_kind = partial(texts.instances, corpus=training.corpus)
    heldout = of_kind(training.kind)

    @cache
    def loaded() -> LoadedModel:
        model, precision = load(run)[0], training_of(run).evaluated_in
        if paper.router_free:
            model = deepcopy(model)
            remove_routers(model, RouterFree.parse(paper.router_free))
        return LoadedModel(model, paper.routing, precision, heldout, of_kind, texts.scale.segment_length)

    of_run, key = folder / run.name, evaluation_key(run, VERSION, paper.routing, paper.router_free)
    with folder_lock(of_run, wait=True):
        for name in names:
            path = of_run / f"{name}-{key}.json"
            found[name] = read_or_make(path, lambda name: MEASURES[name](loaded()), name)
    documents = {domain: list(of_domain) for domain, of_domain in documents_of(heldout).items()}
    return {**found, "documents": documents}
