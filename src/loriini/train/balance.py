"""Loss-free balancing: a bias that follows the load, moved after each step and outside the gradient."""

import torch

from loriini.model import LoriiniForCausalLM
from loriini.train.metrics import ExpertUse


@torch.no_grad()
def update_balance_bias(model: LoriiniForCausalLM, use: ExpertUse) -> None:
    """Move each expert's bias by γ towards an even load (DeepSeek-V3 section 2.1.2; Wang et al., 2024).

    b_i += γ · sign(c̄ - c_i), with c_i how often expert i was chosen in all of the step's micro-batches and γ
    the design's `balance_bias`. Leaves models without a bias alone.
    """
    for mixture, choices_E in zip(model.model.mixtures, use.choices, strict=True):
        if mixture.router is not None and mixture.router.balance_bias is not None:
            error_E = choices_E.mean() - choices_E
            mixture.router.balance_bias += model.config.routing.balance_bias * error_E.sign()
