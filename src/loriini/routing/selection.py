"""Which experts a unit gets, and with what weight: two tables of functions on logits (units, E)."""

from collections.abc import Callable

import torch
from torch import Tensor

from loriini.routing.design import RoutingConfig

Mask = Tensor


def select_all(logits_NE: Tensor, config: RoutingConfig, valid_N: Tensor | None, training: bool) -> Mask:
    """Every unit gets every expert."""
    return torch.ones_like(logits_NE, dtype=torch.bool)


def select_top_k(logits_NE: Tensor, config: RoutingConfig, valid_N: Tensor | None, training: bool) -> Mask:
    """Every unit gets the `top_k` experts of highest logit."""
    return _top(logits_NE, config.top_k)


def select_top_p(logits_NE: Tensor, config: RoutingConfig, valid_N: Tensor | None, training: bool) -> Mask:
    """Every unit gets the fewest experts whose softmax weights reach `top_p` together; at least one."""
    probabilities, ids = logits_NE.softmax(-1).sort(-1, descending=True)
    reached_before = probabilities.cumsum(-1) - probabilities
    return torch.zeros_like(logits_NE, dtype=torch.bool).scatter(-1, ids, reached_before < config.top_p)


def select_expert_choice(
    logits_NE: Tensor, config: RoutingConfig, valid_N: Tensor | None, training: bool
) -> Mask:
    """Training: every expert takes its top `units · capacity_factor / E` units by softmax weight.

    At evaluation every unit gets its top k = capacity_factor experts, which needs no other unit (Lory §5.3).
    The pool is the micro-batch; padded units are never chosen before real ones.
    """
    units, experts = logits_NE.shape
    if not training:
        return _top(logits_NE, max(1, round(config.capacity_factor)))
    weights_NE = logits_NE.softmax(-1)
    if valid_N is not None:
        weights_NE = weights_NE.masked_fill(~valid_N[:, None], -1.0)
    capacity = min(units, max(1, round(units * config.capacity_factor / experts)))
    chosen_CE = weights_NE.topk(capacity, dim=0).indices
    return torch.zeros_like(logits_NE, dtype=torch.bool).scatter(0, chosen_CE, True)


def select_positive(logits_NE: Tensor, config: RoutingConfig, valid_N: Tensor | None, training: bool) -> Mask:
    """Every unit gets the experts of positive logit: any number of them, none included (ReMoE)."""
    return logits_NE > 0


def _top(logits_NE: Tensor, k: int) -> Mask:
    ids = logits_NE.topk(min(k, logits_NE.shape[-1]), dim=-1).indices
    return torch.zeros_like(logits_NE, dtype=torch.bool).scatter(-1, ids, True)


def softmax_all(logits_NE: Tensor, mask_NE: Mask, config: RoutingConfig) -> Tensor:
    """The softmax over all experts, kept where selected and not renormalised."""
    return logits_NE.softmax(-1) * mask_NE


def softmax_selected(logits_NE: Tensor, mask_NE: Mask, config: RoutingConfig) -> Tensor:
    """The softmax over the selected logits; zeros for a unit nobody selected."""
    lowest = torch.finfo(logits_NE.dtype).min
    return logits_NE.masked_fill(~mask_NE, lowest).softmax(-1) * mask_NE


def softmax_twice(logits_NE: Tensor, mask_NE: Mask, config: RoutingConfig) -> Tensor:
    """The softmax over all, then the softmax of the selected probabilities."""
    return softmax_selected(logits_NE.softmax(-1), mask_NE, config)


def uniform(logits_NE: Tensor, mask_NE: Mask, config: RoutingConfig) -> Tensor:
    """The same weight for every selected expert; no gradient reaches the scorer."""
    return mask_NE / mask_NE.sum(-1, keepdim=True).clamp(min=1).to(logits_NE.dtype)


def relu(logits_NE: Tensor, mask_NE: Mask, config: RoutingConfig) -> Tensor:
    """The positive logits themselves; they need not sum to 1 (ReMoE)."""
    return logits_NE.relu() * mask_NE


def sigmoid(logits_NE: Tensor, mask_NE: Mask, config: RoutingConfig) -> Tensor:
    """The sigmoids of the selected logits, divided by their sum (DeepSeek-V3 equation 13)."""
    scores_NE = logits_NE.sigmoid() * mask_NE
    return scores_NE / scores_NE.sum(-1, keepdim=True).clamp(min=torch.finfo(scores_NE.dtype).tiny)


def sparse_mixer(logits_NE: Tensor, mask_NE: Mask, config: RoutingConfig) -> Tensor:
    """Each selected expert's softmax among itself and those close behind it (SparseMixer-v2, in evaluation).

    Close is (l - l') / max(l, |l'|) ≤ 2 · `jitter`; better experts, chosen before it, do not count. Mostly no
    other is close and the gate is 1: the estimate of the router's gradient, which SparseMixer trains with, is
    not made here.
    """
    own_NE1, other_N1E = logits_NE[:, :, None], logits_NE[:, None, :]
    behind_NEE = own_NE1 - other_N1E
    reach_NEE = 2 * config.jitter * torch.maximum(own_NE1, other_N1E.abs())
    close_NEE = (behind_NEE >= 0) & (behind_NEE <= reach_NEE)
    return mask_NE / (-behind_NEE).masked_fill(~close_NEE, -torch.inf).exp().sum(-1)


SELECTIONS: dict[str, Callable[[Tensor, RoutingConfig, Tensor | None, bool], Mask]] = {
    "all": select_all,
    "top_k": select_top_k,
    "top_p": select_top_p,
    "expert_choice": select_expert_choice,
    "positive": select_positive,
}

GATES: dict[str, Callable[[Tensor, Mask, RoutingConfig], Tensor]] = {
    "softmax_all": softmax_all,
    "softmax_selected": softmax_selected,
    "softmax_twice": softmax_twice,
    "uniform": uniform,
    "relu": relu,
    "sigmoid": sigmoid,
    "sparse_mixer": sparse_mixer,
}
