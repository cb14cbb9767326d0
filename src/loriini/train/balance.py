"""Loss-free load balancing: a bias that is moved after each step, outside the gradient."""

import torch
from torch import Tensor

from loriini.model import LoriiniForCausalLM


@torch.no_grad()
def update_balance_bias(model: LoriiniForCausalLM, choices_LE: Tensor, taken: Tensor | float = 1.0) -> None:
    """Move each expert's bias by γ towards an even load (DeepSeek-V3 section 2.1.2; Wang et al., 2024).

    b_i += γ · sign(c̄ - c_i), where c_i are the choices of expert i in all of the step's micro-batches,
    `choices_LE` (layers, E), and γ is the design's `balance_bias`. Does nothing for models without a bias,
    or if `taken` is 0, for a skipped step.
    """
    for mixture, choices_E in zip(model.model.mixtures, choices_LE, strict=True):
        if mixture.router is not None and mixture.router.balance_bias is not None:
            error_E = choices_E.mean() - choices_E
            mixture.router.balance_bias += model.config.routing.balance_bias * taken * error_E.sign()
