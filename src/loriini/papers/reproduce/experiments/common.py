"""Claims, columns and charts that several items share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from loriini.papers.published import OUR_DOMAINS
from loriini.papers.reproduce.charts import SMOOTHING, Chart, band, dots, lines, tiles
from loriini.papers.reproduce.claim import Claim, is_clearly_above
from loriini.papers.reproduce.measured import Measured
from loriini.papers.reproduce.measures import CHOICES
from loriini.papers.reproduce.quantities import Values, combined

THEIR_NAMES = {ours: theirs for theirs, ours in OUR_DOMAINS.items()}
AT_CHANCE = "it is not clearly above chance"
Quantity = Callable[[str], Values]
"""A quantity of a row, by seed."""
Relation = Callable[[str, Values, Values], Claim]
"""`below`, `above`, `close` …: a claim about two quantities."""


def compare(relation: Relation, what: str, of: Quantity, one: str, other: str) -> Claim:
    """A claim about the same quantity of two rows."""
    return relation(f"{what} of {one} minus that of {other}", of(one), of(other))


def by_domain(relation: Relation, m: Measured, one: str, other: str) -> Iterator[Claim]:
    """A claim about the held-out loss of two rows for each domain."""
    for domain in m.domains(other):
        yield compare(relation, f"{domain}: loss", partial(m.loss, domain=domain), one, other)


def exp(values: Values) -> dict[int, float]:
    """Perplexities of losses."""
    return {seed: float(np.exp(value)) for seed, value in values.items()}


def perplexity_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """Held-out perplexity by the papers' names of the domains, and the geometric mean."""
    of_domains = {THEIR_NAMES.get(d, d): m.perplexity(row, d) for d in m.domains(row)}
    return {**of_domains, "mean": exp(m.loss(row))}


def training_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """Training loss at the end."""
    return {"training loss": m.training_loss(row)}


def text_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """Mean perplexity, by the text that the run was trained on; and by its domains."""
    return {m.text: exp(m.loss(row)), **{d: m.perplexity(row, d) for d in m.domains(row)}}


def question_columns(m: Measured, row: str) -> Mapping[str, Values]:
    """Accuracy of questions by domain in per cent, their mean, and the right answer's log-likelihood."""
    domains = sorted(next(iter(m.each(row, "questions", "accuracy").values()), {}))
    accuracy = {d: scaled(m.of(row, "questions", "accuracy", d), 100) for d in domains}
    return {
        **{f"{d}, %": values for d, values in accuracy.items()},
        "mean, %": scaled(m.accuracy(row), 100),
        "log-likelihood": m.likelihood(row),
    }


def above_chance(accuracy: Values) -> Values:
    """An accuracy minus that of guessing."""
    return combined(lambda one: one[0] - 1 / CHOICES, (accuracy,))


def is_above_chance(accuracy: Values) -> bool:
    """Whether an accuracy is clearly above that of guessing."""
    return is_clearly_above(above_chance(accuracy), 0.0)


def scaled(values: Values, factor: float) -> dict[int, float]:
    """Values times a factor."""
    return combined(lambda one: factor * one[0], (values,))


def losses(m: Measured) -> Iterator[Chart]:
    """Training loss over tokens, a line for each row."""
    series = {
        row: band(m.curve(row, "tokens"), m.curve(row), SMOOTHING) for row in m.finished if m.curve(row)
    }
    yield lines("training loss", "training tokens", "nats a token", series, loss=True)


def perplexities(m: Measured) -> Iterator[Chart]:
    """Held-out perplexity of every row by domain."""
    series = {row: dict(perplexity_columns(m, row)) for row in m.finished}
    yield dots("perplexity", "perplexity", series)


def expert_charts(m: Measured, row: str, key: str, y: str) -> Iterator[Chart]:
    """A statistic of each expert over training, a chart for each layer, of the first seed."""
    recorded = next(iter(m.each(row, "training", key).values()), None)
    if recorded is None:
        return
    values_SLE = np.array(recorded["values"])
    for layer in range(values_SLE.shape[1]):
        experts = {
            f"expert {e}": {"x": recorded["tokens"], "y": values_SLE[:, layer, e].tolist()}
            for e in range(values_SLE.shape[2])
        }
        yield lines(f"{row}: layer {layer}, first seed", "training tokens", y, experts)


def route_tiles(m: Measured, row: str, key: str, title: str, measure: str = "routes") -> Chart:
    """Mean gates or shares of choices by domain and expert, a panel for each layer, of the first seed."""
    layers = next(iter(m.each(row, measure, "layers").values()))
    domains = sorted(layers[0][key])
    return tiles(title, [[layer[key][d] for d in domains] for layer in layers], domains)


def layer_chart(by_row: Mapping[str, Mapping[int, Sequence[float]]], y: str) -> Chart:
    """A statistic over the layers, a line for each row that has it."""
    series = {
        row: band(list(range(len(next(iter(by_seed.values()))))), by_seed)
        for row, by_seed in by_row.items()
        if by_seed
    }
    return lines("by layer", "layer", y, series)


def mean_of_part(by_seed: Mapping[int, Sequence[Any]], start: float, stop: float = 1.0) -> dict[int, float]:
    """The mean of what was recorded between two shares of training, at least once."""
    found = {}
    for seed, recorded in by_seed.items():
        first = min(int(start * len(recorded)), len(recorded) - 1)
        found[seed] = float(np.mean(recorded[first : max(first + 1, round(stop * len(recorded)))]))
    return found


def layer_mean(by_seed: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """The mean over layers."""
    return {seed: float(np.mean(values)) for seed, values in by_seed.items()}


def slope(by_seed: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """The change from one layer to the next, by least squares."""
    return {seed: float(np.polyfit(np.arange(len(values)), values, 1)[0]) for seed, values in by_seed.items()}
