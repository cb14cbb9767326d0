"""Selection of experts, and their gates: functions of logits (units, E), in two tables by name.

Ties go to the lower expert index and, in expert choice, to the earlier unit, on every device.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from loriini.routing.design import RoutingConfig

Mask = Tensor
Select = Callable[[Tensor, RoutingConfig, Tensor | None, bool], Mask]
Weigh = Callable[[Tensor, Mask, RoutingConfig], Tensor]


def select_all(logits_NE: Tensor, design: RoutingConfig, valid_N: Tensor | None, training: bool) -> Mask:
    """Every unit gets every expert."""
    return torch.ones_like(logits_NE, dtype=torch.bool)


def select_top_k(logits_NE: Tensor, design: RoutingConfig, valid_N: Tensor | None, training: bool) -> Mask:
    """Every unit gets the `top_k` experts of highest logit (with `balance_bias`: sigmoid plus bias)."""
    return _top(logits_NE, design.top_k)


def select_top_p(logits_NE: Tensor, design: RoutingConfig, valid_N: Tensor | None, training: bool) -> Mask:
    """Every unit gets the fewest experts whose softmax weights together reach `top_p`; at least one."""
    probabilities, ids = logits_NE.softmax(-1).sort(dim=-1, descending=True, stable=True)
    reached_before = probabilities.cumsum(-1) - probabilities
    return torch.zeros_like(logits_NE, dtype=torch.bool).scatter(-1, ids, reached_before < design.top_p)


def select_expert_choice(
    logits_NE: Tensor, design: RoutingConfig, valid_N: Tensor | None, training: bool
) -> Mask:
    """Training: every expert takes its top `units · capacity_factor / E` units of the micro-batch.

    Units are compared by their softmax over experts, or by the logits themselves if these are activation
    norms (AoE Q7). Padded units neither count nor are chosen. At evaluation every unit gets its top
    `capacity_factor` experts, whatever the other units (Lory §5.3). Both numbers are rounded, at least 1.
    """
    if not training:
        return _top(logits_NE, _evaluation_k(design))
    scores_NE = logits_NE if design.scorer == "activation_norm" else logits_NE.softmax(-1)
    units, experts = logits_NE.shape
    if valid_N is not None:
        units = int(valid_N.sum())
        scores_NE = scores_NE.masked_fill(~valid_N[:, None], -torch.inf)
    return _top(scores_NE, _capacity(design, units, experts), dim=0)


def select_positive(logits_NE: Tensor, design: RoutingConfig, valid_N: Tensor | None, training: bool) -> Mask:
    """Every unit gets the experts with a positive logit: any number of them, possibly none (ReMoE)."""
    return logits_NE > 0


def _capacity(design: RoutingConfig, units: int, experts: int) -> int:
    return min(units, max(1, round(units * design.capacity_factor / experts)))


def _evaluation_k(design: RoutingConfig) -> int:
    return max(1, round(design.capacity_factor))


def _top(scores_NE: Tensor, k: int, dim: int = -1) -> Mask:
    """Mask of the k highest scores along an axis; of equal ones the first, which `topk` does not promise."""
    ids = scores_NE.sort(dim=dim, descending=True, stable=True).indices
    chosen = ids.narrow(dim, 0, min(k, scores_NE.shape[dim]))
    return torch.zeros_like(scores_NE, dtype=torch.bool).scatter(dim, chosen, True)


class FixedCounts(NamedTuple):
    """How many experts every unit gets, and how many units every expert gets; None where the number varies.

    Shapes that depend on these numbers alone are static for torch.compile.
    """

    per_unit: int | None = None
    per_expert: int | None = None


def fixed_counts(
    design: RoutingConfig, units: int, experts: int, training: bool, padded: bool
) -> FixedCounts:
    """The counts that a design fixes; `padded`: some of the `units` may hold no tokens."""
    if design.selection == "all":
        return FixedCounts(per_unit=experts)
    if design.selection == "top_k":
        return FixedCounts(per_unit=min(design.top_k, experts))
    if design.selection == "expert_choice":
        if not training:
            return FixedCounts(per_unit=min(_evaluation_k(design), experts))
        if not padded:
            return FixedCounts(per_expert=_capacity(design, units, experts))
    return FixedCounts()


def softmax_all(logits_NE: Tensor, mask_NE: Mask, design: RoutingConfig) -> Tensor:
    """The softmax over all experts, kept where selected and not renormalised."""
    return logits_NE.softmax(-1) * mask_NE


def softmax_selected(logits_NE: Tensor, mask_NE: Mask, design: RoutingConfig) -> Tensor:
    """The softmax over the selected logits; zeros for a unit without experts."""
    lowest = torch.finfo(logits_NE.dtype).min
    return logits_NE.masked_fill(~mask_NE, lowest).softmax(-1) * mask_NE


def softmax_twice(logits_NE: Tensor, mask_NE: Mask, design: RoutingConfig) -> Tensor:
    """The softmax over all experts, then the softmax of the selected probabilities."""
    return softmax_selected(logits_NE.softmax(-1), mask_NE, design)


def uniform(logits_NE: Tensor, mask_NE: Mask, design: RoutingConfig) -> Tensor:
    """Equal weights for the selected experts; no gradient reaches the scorer."""
    return mask_NE / mask_NE.sum(-1, keepdim=True).clamp(min=1).to(logits_NE.dtype)


def relu(logits_NE: Tensor, mask_NE: Mask, design: RoutingConfig) -> Tensor:
    """The positive logits themselves; they need not sum to 1 (ReMoE)."""
    return logits_NE.relu() * mask_NE


def sigmoid(logits_NE: Tensor, mask_NE: Mask, design: RoutingConfig) -> Tensor:
    """The sigmoids of the selected logits, divided by their sum (DeepSeek-V3 equation 13)."""
    return softmax_selected(-softplus(-logits_NE), mask_NE, design)  # of the log-sigmoids: no underflow


def sparse_mixer(logits_NE: Tensor, mask_NE: Mask, design: RoutingConfig) -> Tensor:
    """Each selected expert's softmax over itself and those close below it (SparseMixer-v2 at evaluation).

    l' is close below l where 0 ≤ (l - l') / max(l, |l'|) ≤ 2 · `jitter`. Usually no other is close, and the
    gate is 1. SparseMixer's estimate of the router's gradient in training is not implemented.
    """
    own_NE1, other_N1E = logits_NE[:, :, None], logits_NE[:, None, :]
    below_NEE = own_NE1 - other_N1E
    reach_NEE = 2 * design.jitter * torch.maximum(own_NE1, other_N1E.abs())
    close_NEE = (below_NEE >= 0) & (below_NEE <= reach_NEE)
    return mask_NE / (-below_NEE).masked_fill(~close_NEE, -torch.inf).exp().sum(-1)


SELECTIONS: dict[str, Select] = {
    "all": select_all,
    "top_k": select_top_k,
    "top_p": select_top_p,
    "expert_choice": select_expert_choice,
    "positive": select_positive,
}

GATES: dict[str, Weigh] = {
    "softmax_all": softmax_all,
    "softmax_selected": softmax_selected,
    "softmax_twice": softmax_twice,
    "uniform": uniform,
    "relu": relu,
    "sigmoid": sigmoid,
    "sparse_mixer": sparse_mixer,
}
