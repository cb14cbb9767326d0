"""The end of the dense warm-up: a model and its optimizer state are copied into experts."""

from dataclasses import dataclass

import torch

from loriini.common.checks import FractionBelowOne, check_fields
from loriini.common.hardware import Precision
from loriini.common.settings import Needs, setting
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.weights.conversion import converted
from loriini.parallel.mesh import SINGLE_PROCESS, Parallel
from loriini.parallel.sharding import build_model, expand_into_experts
from loriini.train.optimizer import A_MIXTURE, OptimizerConfig, carry_moments, make_optimizer


@dataclass(frozen=True)
class WarmupConfig:
    """The dense warm-up (Lory section 4.1): a dense model trains first, then is copied into the experts."""

    dense_share: FractionBelowOne = setting(
        0.0, needs=Needs(A_MIXTURE.text, lambda run: run.is_mixture or run.warmup.dense_share == 0)
    )
    """Fraction of the steps that train the dense model; 0: none."""

    def __post_init__(self) -> None:
        check_fields(self, "warmup.")


def upcycle(
    dense: LoriiniForCausalLM,
    dense_optimizer: torch.optim.Optimizer,
    config: LoriiniConfig,
    optimizer: OptimizerConfig,
    parallel: Parallel = SINGLE_PROCESS,
    precision: Precision = "fp32",
) -> tuple[LoriiniForCausalLM, torch.optim.AdamW]:
    """Copy a dense model and its moments into the mixture of `config`; returns it and its optimizer."""
    if parallel.mesh is None:
        mixture = converted(dense, config)
    else:
        mixture = copy_into_sharded_experts(dense, config, parallel, precision)
    mixture_optimizer = make_optimizer(mixture, optimizer)
    carry_moments(dense, dense_optimizer, mixture, mixture_optimizer)
    return mixture, mixture_optimizer


@torch.no_grad()
def copy_into_sharded_experts(
    dense: LoriiniForCausalLM, config: LoriiniConfig, parallel: Parallel, precision: Precision
) -> LoriiniForCausalLM:
    """`converted` for a sharded dense model, tensor by tensor.

    The first process draws all weights, though only the routers' are used, so that routers are the same as
    in a single process.
    """
    source = dense.state_dict()
    mixture = build_model(config, parallel, precision, leave_out=source)
    for name, target in mixture.state_dict().items():
        if name in source:
            target.copy_(expand_into_experts(source[name], target))
    return mixture
