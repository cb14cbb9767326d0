"""Measurements during training: the loop is given a `Measure` of held-out perplexity."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from loriini.common.checks import Count, CountOrZero, check_fields
from loriini.common.settings import Needs, setting
from loriini.data.read.document import Contexts
from loriini.data.read.records import OnError
from loriini.model import LoriiniForCausalLM
from loriini.model.mode import undisturbed

HELDOUT = Needs("held-out text, --heldout", lambda run: run.evaluate.heldout)


@dataclass(frozen=True)
class EvaluateConfig:
    """Evaluation during training: perplexity of held-out documents."""

    heldout: tuple[str, ...] = setting((), "path")
    """Held-out documents to evaluate on, inputs as for `prepare`; none: no evaluation."""
    on_error: OnError = setting("stop", needs=HELDOUT)
    """Stop at the first flawed record of the held-out documents, or skip and count them."""
    every: Count = setting(500, "aside", HELDOUT)
    """Steps between evaluations; there is also one after the last step."""
    instances: Count = setting(64, needs=HELDOUT)
    """Held-out instances of each domain, at most."""
    contexts: Contexts = setting("documents", needs=HELDOUT)
    """documents: score each by itself, a long one in windows; strung: join them and cut into instances."""
    skip: CountOrZero | None = setting(None, needs=HELDOUT)
    """Predictions left out at the start of each instance; none: the model's own segment 1. Runs that are
    compared need the same value."""

    def __post_init__(self) -> None:
        check_fields(self, "evaluate.")


@dataclass(frozen=True)
class Measure:
    """Something measured every `every` steps and after the last.

    The best checkpoint is that of the lowest `mean_perplexity`, if results have one.
    """

    every: int
    of: Callable[[LoriiniForCausalLM], dict[str, Any]]
    digest: str | None = None
    """The digest of the held-out text that is measured; a resumed run must be measured on the same."""

    def due(self, step: int, steps: int) -> bool:
        """Whether to measure after `step` of `steps`."""
        return step % self.every == 0 or step == steps

    def take(self, model: LoriiniForCausalLM) -> dict[str, Any]:
        """Measure, leaving the model's mode and the random state unchanged; every process must call it."""
        # eager: graphs for other shapes, modes and caches would displace those of the training step
        with undisturbed(model), torch.compiler.set_stance("force_eager"):
            return self.of(model)
