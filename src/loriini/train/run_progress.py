"""How far a run has come: what its loop hands from step to step, and its checkpoints record."""

from dataclasses import dataclass
from typing import Annotated

from loriini.common.checks import Bounds, NotNegative

Totals = tuple[tuple[NotNegative, ...], ...]
"""What each expert of each layer got, (layers, E): units, or their gates."""
Norm = Annotated[float, Bounds(least=0)]


@dataclass(frozen=True)
class RunProgress:
    """Counts of a run, skipped steps included, and what its next step needs of earlier ones."""

    step: int = 0
    """Steps taken."""
    consumed: int = 0
    """Instances read."""
    tokens: int = 0
    """Tokens read."""
    skips: int = 0
    """Steps in a row, up to the last one, that were skipped."""
    expert_totals: Totals = ()
    """What each expert got since the last record of every expert, in steps that were not skipped."""
    norms: tuple[Norm, ...] = ()
    """Finite gradient norms of the last steps, as many as the guard against spikes compares with."""
