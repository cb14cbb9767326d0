"""A measurement of causality: do a model's logits change when later tokens do?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from loriini.model import LoriiniForCausalLM
from loriini.model.mode import evaluation_mode
from loriini.model.weights.loading import check_finite
from loriini.routing.design import Causality

POSITIONS = 8
"""Number of positions, evenly spaced, after which all tokens are changed."""
INSTANCES = 4
"""Number of random instances that `random_instances` makes."""

ROUNDING = 1e-4
"""Changes up to this share of the largest logit count as rounding errors of float32."""


@dataclass(frozen=True)
class Leak:
    """How much logits change when every later token is changed.

    `segment_1`: the largest change of a logit in segment 1 (0 without segments); `later`: after it.
    `declared`: the design's causality; `measured`: the causality if changes up to `tolerance` are ignored.
    """

    declared: Causality
    measured: Causality
    segment_1: float
    later: float
    tolerance: float


@torch.no_grad()
def audit(model: LoriiniForCausalLM, ids_BL: Tensor) -> Leak:
    """Measure a model's leak in `eval()` on instances (B, L): change every token after t, for POSITIONS t.

    Use float32: in bfloat16, rounding hides small leaks.
    """
    labels_B = torch.zeros(len(ids_BL), dtype=torch.long, device=ids_BL.device)
    offsets_BL = torch.randint_like(ids_BL, 1, model.config.vocab_size)
    others_BL = (ids_BL + offsets_BL) % model.config.vocab_size
    change_L = torch.zeros(ids_BL.shape[1], device=ids_BL.device)
    positions = torch.linspace(0, len(change_L) - 2, min(POSITIONS, len(change_L) - 1)).long().tolist()
    with evaluation_mode(model):
        expected_BLV = model(ids_BL, routing_labels=labels_B).logits.float()
        check_finite(expected_BLV, "the model's logits")
        for t in positions:
            changed_BL = torch.cat([ids_BL[:, : t + 1], others_BL[:, t + 1 :]], dim=1)
            logits_BLV = model(changed_BL, routing_labels=labels_B).logits.float()
            now_L = (logits_BLV - expected_BLV).abs().amax((0, 2))
            change_L[: t + 1] = change_L[: t + 1].maximum(now_L[: t + 1])
    first = model.config.first_segment_length
    segment_1, later = (
        part.max().item() if len(part) else 0.0 for part in (change_L[:first], change_L[first:])
    )
    tolerance = ROUNDING * expected_BLV.abs().max().item()
    measured: Causality = "after_first_segment" if segment_1 > tolerance else "strict"
    measured = "none" if later > tolerance else measured
    return Leak(model.config.design.causality, measured, segment_1, later, tolerance)


def random_instances(model: LoriiniForCausalLM, seed: int = 0) -> Tensor:
    """Random ids (INSTANCES, L) for an audit: four segments long, or the model's context if that is less."""
    length = min(model.config.max_position_embeddings, 4 * model.config.routing.segment_length)
    generator = torch.Generator().manual_seed(seed)
    ids_BL = torch.randint(model.config.vocab_size, (INSTANCES, length), generator=generator)
    return ids_BL.to(model.device)
