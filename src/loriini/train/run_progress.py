"""How far a run has come: the counts that its loop updates in each step, and its checkpoints record."""

from dataclasses import dataclass
from typing import Annotated

from loriini.common.checks import Bounds, CountOrZero, NotNegative

Totals = tuple[tuple[NotNegative, ...], ...]
"""What each expert of each layer got, (layers, E): the number of units, or the sum of their gates."""
Norm = Annotated[float, Bounds(least=0)]


@dataclass(frozen=True)
class RunProgress:
    """Counts of a run, skipped steps included, and what its next step needs to know of earlier ones."""

    step: CountOrZero = 0
    """Steps taken."""
    consumed: CountOrZero = 0
    """Instances read."""
    tokens: CountOrZero = 0
    """Tokens read."""
    skips: CountOrZero = 0
    """Steps in a row, up to the last one, that were skipped."""
    expert_totals: Totals = ()
    """What each expert got since the last per-expert record, without skipped steps."""
    norms: tuple[Norm, ...] = ()
    """Finite gradient norms of the last steps, as many as the guard against spikes compares with."""
