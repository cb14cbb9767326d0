"""How far a run has come: the counts that its loop updates in each step, and its checkpoints record."""

from dataclasses import dataclass

Totals = tuple[tuple[float, ...], ...]
"""What each expert of each layer got, (layers, E): the number of units, or the sum of their gates."""


@dataclass(frozen=True)
class RunProgress:
    """Counts of a run, skipped steps included, and what its next step needs to know of earlier ones."""

    step: int = 0
    """Steps taken."""
    consumed: int = 0
    """Instances read."""
    tokens: int = 0
    """Tokens read."""
    skips: int = 0
    """Steps in a row, up to the last one, that were skipped."""
    expert_totals: Totals = ()
    """What each expert got since the last per-expert record, without skipped steps."""
    norms: tuple[float, ...] = ()
    """Finite gradient norms of the last steps, as many as the guard against spikes compares with."""
