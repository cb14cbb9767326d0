"""A measurement of causality: do a model's logits change when later tokens do?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from loriini.model import LoriiniForCausalLM
from loriini.model.generate.mode import evaluation_mode
from loriini.model.weights.loading import check_finite
from loriini.routing.design import Causality

POSITIONS = 8
"""Number of positions, evenly spaced, after which all tokens are changed."""
INSTANCES = 4
"""Number of random instances."""

ROUNDING = 1e-4
"""Relative to the largest logit; smaller changes are rounding errors of float32."""


@dataclass(frozen=True)
class Leak:
    """The largest change of a logit at or before a position after which every token was changed.

    `segment_1` is the change in segment 1 (0 for a design without segments), `later` that after it.
    `measured` is the causality if changes up to `tolerance` do not count, `declared` that of the design.
    """

    declared: Causality
    measured: Causality
    segment_1: float
    later: float
    tolerance: float
    positions: tuple[int, ...]
    instances: int
    length: int

    def __str__(self) -> str:
        return (
            f"declared {self.declared}, measured {self.measured}\n"
            f"largest logit change before a changed future: {self.segment_1:.3g} in segment 1, "
            f"{self.later:.3g} elsewhere (rounding: up to {self.tolerance:.2g}), after "
            f"{len(self.positions)} positions of {self.instances} instances of {self.length} tokens"
        )


@torch.no_grad()
def audit(model: LoriiniForCausalLM, ids_BL: Tensor) -> Leak:
    """Measure a model's leak in `eval()` on instances (B, L): change every token after t, for several t.

    Use float32: in bfloat16, rounding hides small leaks.
    """
    with evaluation_mode(model):
        return _leak(model, ids_BL)


def _leak(model: LoriiniForCausalLM, ids_BL: Tensor) -> Leak:
    B, L = ids_BL.shape
    labels_B = torch.zeros(B, dtype=torch.long, device=ids_BL.device)
    expected_BLV = model(ids_BL, routing_labels=labels_B).logits.float()
    check_finite(expected_BLV, "the model's logits")
    offsets_BL = torch.randint_like(ids_BL, 1, model.config.vocab_size)
    others_BL = (ids_BL + offsets_BL) % model.config.vocab_size
    positions = torch.linspace(0, L - 2, min(POSITIONS, L - 1)).long().tolist()
    change_L = torch.zeros(L, device=ids_BL.device)
    for t in positions:
        changed_BL = torch.cat([ids_BL[:, : t + 1], others_BL[:, t + 1 :]], dim=1)
        logits_BLV = model(changed_BL, routing_labels=labels_B).logits.float()
        now_L = (logits_BLV - expected_BLV).abs().amax((0, 2))
        change_L[: t + 1] = change_L[: t + 1].maximum(now_L[: t + 1])
    first = model.config.first_segment_length
    segment_1, later = _largest(change_L[:first]), _largest(change_L[first:])
    tolerance = ROUNDING * expected_BLV.abs().max().item()
    return Leak(
        declared=model.config.design.causality,
        measured=_causality(segment_1 > tolerance, later > tolerance),
        segment_1=segment_1,
        later=later,
        tolerance=tolerance,
        positions=tuple(positions),
        instances=B,
        length=L,
    )


def random_instances(model: LoriiniForCausalLM, seed: int = 0) -> Tensor:
    """Random ids (INSTANCES, L) for an audit: four segments long, or the model's context if that is less."""
    length = min(model.config.max_position_embeddings, 4 * model.config.routing.segment_length)
    generator = torch.Generator().manual_seed(seed)
    ids_BL = torch.randint(model.config.vocab_size, (INSTANCES, length), generator=generator)
    return ids_BL.to(model.device)


def _largest(changes: Tensor) -> float:
    return changes.max().item() if len(changes) else 0.0


def _causality(in_segment_1: bool, elsewhere: bool) -> Causality:
    return "none" if elsewhere else "after_first_segment" if in_segment_1 else "strict"
