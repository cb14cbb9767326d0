"""Types of the objects in a comparison's results; docs/compare.md has the meaning of their keys."""

from typing import NotRequired, TypedDict


class Interval(TypedDict):
    """A mean and its interval; bounds are null where there is no interval."""

    mean: float
    low: float | None
    high: float | None


class Change(TypedDict):
    """A relative change and one of its intervals."""

    change: float
    low: float | None
    high: float | None


class DifferenceRow(TypedDict):
    """The difference of perplexity from the baseline, with its intervals over seeds and held-out text."""

    change: float
    seeds: Change
    documents: Change


class ParameterCounts(TypedDict):
    """Parameters of a model."""

    total: int
    active: int


class VariantRow(TypedDict):
    """A design and grid point over its seeds."""

    name: str
    design: str
    settings: dict[str, str]
    width: NotRequired[int]
    causality: str
    training_causality: str
    experts_vary: NotRequired[bool]
    parameters: NotRequired[ParameterCounts]
    flops_per_token: NotRequired[float]
    seeds: list[int]
    finished_seeds: list[int]
    diverged_seeds: list[int]
    failed_seeds: list[int]
    experts: NotRequired[float]
    utilisation: NotRequired[float]
    experts_in_use: NotRequired[float | None]
    experts_per_decision: NotRequired[float | None]
    experts_by_score: NotRequired[float | None]
    training_loss: NotRequired[Interval]
    perplexity: NotRequired[dict[str, Interval]]
    bits_per_byte: NotRequired[dict[str, Interval]]
    chosen: NotRequired[bool]
    edge: NotRequired[list[str]]
    difference: NotRequired[dict[str, DifferenceRow]]
    paired_seeds: NotRequired[list[int]]


class Line(TypedDict):
    """A fitted line on logarithmic axes: loss = a · FLOPs^(−b)."""

    a: float
    b: Interval


class LadderDesign(TypedDict):
    """A design along the ladder; only `name` and `variants` if no size of it finished."""

    name: str
    variants: list[str]
    widths: NotRequired[list[int]]
    seeds: NotRequired[list[int]]
    flops: NotRequired[list[float]]
    loss: NotRequired[list[Interval]]
    line: NotRequired[Line]
