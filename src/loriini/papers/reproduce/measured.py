"""What was measured of an item's runs, by row and seed, and quantities of it for claims and charts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from statistics import fmean
from typing import Any

import numpy as np

from loriini.evaluate.intervals import Documents, Sample, degrees_of_freedom, widened
from loriini.papers.reproduce.quantities import OnText, Resamples, Values

Measures = Mapping[str, Any]
"""What was measured of one training: `training`, `heldout`, `routes`, … each an object."""
Layer = Mapping[str, Any]
"""Routes of one layer."""


@dataclass(frozen=True)
class Measured:
    """The measurements of an item on one text: row → seed → measures.

    `extra` is what is computed or measured without a training.
    """

    rows: Mapping[str, Mapping[int, Measures]]
    text: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def of(self, row: str, *path: str) -> dict[int, float]:
        """A number by seed, at a path of keys in the measures; seeds without it are left out."""
        return {seed: float(value) for seed, value in self.each(row, *path).items()}

    def each(self, row: str, *path: str) -> dict[int, Any]:
        """A list or an object by seed, at a path of keys in the measures."""
        values = {seed: at(measures, path) for seed, measures in self.rows.get(row, {}).items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def computed(self, *path: str) -> dict[int, Any]:
        """A list at a path of keys in `extra`, by round or seed."""
        return dict(enumerate(at(self.extra, path)))

    def training_loss(self, row: str) -> Values:
        """Mean training loss of the last tenth of the steps, in nats a token."""
        return self.of(row, "training", "training_loss")

    def loss(self, row: str, domain: str | None = None) -> OnText:
        """Log-perplexity of held-out text by seed, in nats a token: of a domain, or the mean over domains."""
        return self.on_text(row, "heldout", "instance_losses", domain=domain)

    def accuracy(self, row: str) -> OnText:
        """Mean accuracy over the domains' questions, between 0 and 1."""
        return self.on_text(row, "questions", "right")

    def likelihood(self, row: str) -> OnText:
        """Mean log-likelihood of the right answers, in nats a token."""
        return self.on_text(row, "questions", "log_likelihoods")

    def on_text(self, row: str, *path: str, domain: str | None = None) -> OnText:
        """Mean over domains (or of one) of a value per held-out instance.

        `path` leads to {domain: [one value per instance]}.
        """
        by_seed = {
            seed: {name: values for name, values in by_domain.items() if domain in (None, name)}
            for seed, by_domain in self.each(row, *path).items()
            if domain is None or domain in by_domain
        }
        means = {seed: fmean(map(fmean, by_domain.values())) for seed, by_domain in by_seed.items()}
        documents: Documents = next(iter(self.each(row, "documents").values()), {})
        samples = [
            Sample.from_values([of_seed[name] for of_seed in by_seed.values()], name, documents.get(name, ()))
            for name in next(iter(by_seed.values()), {})
        ]
        freedom = degrees_of_freedom([sample.documents for sample in samples])
        return OnText(means, partial(resampled, means, samples, freedom), freedom)

    def perplexity(self, row: str, domain: str) -> dict[int, float]:
        return self.of(row, "heldout", "perplexity", domain)

    def domains(self, row: str) -> list[str]:
        return sorted(next(iter(self.each(row, "heldout", "perplexity").values()), {}))

    def curve(self, row: str, key: str = "loss") -> dict[int, list[float]]:
        return self.each(row, "training", "curve", key)

    def per_layer(
        self, row: str, of: str | Callable[[Layer], float], measure: str = "routes"
    ) -> dict[int, list[float]]:
        """A statistic of routes by seed: each layer's number at a key, or what a function finds of it."""
        statistic = itemgetter(of) if isinstance(of, str) else of
        return {
            seed: list(map(statistic, layers)) for seed, layers in self.each(row, measure, "layers").items()
        }

    @property
    def finished(self) -> list[str]:
        return [row for row, by_seed in self.rows.items() if by_seed]


def resampled(means: Values, samples: Sequence[Sample], freedom: float) -> Resamples:
    """Seed → the mean over domains on every resample of their documents (R,), widened if these are few."""
    means_SR = np.mean([sample.resampled_MR for sample in samples], axis=0)
    return dict(zip(means, widened(means_SR, [*means.values()], freedom), strict=True))


def at(value: Any, path: Sequence[str]) -> Any:
    """The value at a path of keys; None where a key is missing."""
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value
