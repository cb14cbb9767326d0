"""Initial weights of experts, scorers and GPT-2's blocks."""

import torch
from torch import nn
from transformers import initialization as init
from transformers.pytorch_utils import Conv1D

from loriini.model.configuration import LoriiniConfig
from loriini.model.experts.stacked import Experts, FactorizedExperts, GeluExperts
from loriini.routing.scorer import ScorerModule


@torch.no_grad()
def draw_weights(module: nn.Module, config: LoriiniConfig) -> None:
    """Draw the module's own parameters from N(0, `initializer_range`) and set biases and buffers to 0.

    A scorer's vectors, such as a learned temperature, keep the values that its constructor gave them. What
    transformers initialises itself is left as it is. Weights that a checkpoint has loaded are kept.
    """
    # GPT-2 scales down what adds to the residual stream: two branches a layer.
    residual = config.initializer_range / (2 * config.num_hidden_layers) ** 0.5
    if isinstance(module, Experts | ScorerModule | Conv1D):
        std = residual if getattr(module, "adds_to_residual", False) else config.initializer_range
        for name, weight in module.named_parameters(recurse=False):
            if name.endswith("bias"):
                init.zeros_(weight)
            elif weight.dim() > 1:
                init.normal_(weight, mean=0.0, std=std)
    for buffer in (getattr(module, name, None) for name in ("balance_bias", "router_seed")):
        if buffer is not None:  # memory as it was, where a checkpoint was read into a model without numbers
            init.zeros_(buffer)
    if isinstance(module, GeluExperts):
        init.normal_(module.down_proj, mean=0.0, std=residual)
    elif isinstance(module, FactorizedExperts):
        # The product of factors of deviation s has √r s²; it is to have a full gate projection's.
        factor = (config.initializer_range / module.low_proj.shape[1] ** 0.5) ** 0.5
        init.normal_(module.low_proj, mean=0.0, std=factor)
        init.normal_(module.gate_proj, mean=0.0, std=factor)
