"""Soft mixtures with only the likeliest experts of each unit, without further training."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

from loriini.compare.differences import differences_from, with_mean
from loriini.compare.running import Trial
from loriini.compare.seeds import geometric
from loriini.evaluate.heldout import documents_of
from loriini.evaluate.intervals import OVERALL, differences_by_domain
from loriini.evaluate.perplexity import evaluate
from loriini.evaluate.runs import EvaluationSettings, shared_heldout
from loriini.model.weights.conversion import soft_to_top_k
from loriini.model.weights.loading import load_model, run_precision

EXPERTS = (4, 2, 1)
"""How many experts of a unit are kept."""


def is_soft(trial: Trial) -> bool:
    """Whether a trial merges all experts of each unit."""
    design = trial.cell.run.routing
    return design.soft and design.combination == "parameters" and trial.cell.run.model.num_experts > 1


def narrow(trials: Sequence[Trial], evaluation: EvaluationSettings) -> list[dict[str, Any]]:
    """Perplexity of one design's trials, all of one size, with all experts and with the k likeliest.

    Each result has `experts`, `perplexity`, and but for the first the `difference` to all experts, with an
    interval over seeds and one over held-out text.
    """
    evaluation, heldout = shared_heldout([trial.folder for trial in trials], evaluation)
    scores = defaultdict[str, dict[int, dict[str, Any]]](dict)
    for trial in trials:
        model, _ = load_model(trial.folder)
        for k in (model.config.num_experts, *EXPERTS):
            scores[str(k)][trial.cell.seed] = evaluate(
                soft_to_top_k(model, k),
                heldout,
                evaluation.skip,
                precision=run_precision(trial.folder),
                title=f"{trial.name} with {k} experts",
            )
    differences_of = partial(differences_by_domain, documents=documents_of(heldout))
    differences = differences_from(next(iter(scores)), scores, differences_of)
    return [
        {
            "experts": int(k),
            "perplexity": geometric(
                [with_mean(score["perplexity"])[OVERALL] for score in own.values()]
            ).to_dict(),
            **({"difference": differences[k]["difference"][OVERALL]} if k in differences else {}),
        }
        for k, own in scores.items()
    ]
