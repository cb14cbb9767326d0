"""One batch for several processes, and a backward pass of its mean loss."""

from functools import cache

import torch
from torch import Tensor

from loriini import LoriiniConfig, LoriiniForCausalLM
from loriini.common.hardware import autocast
from loriini.parallel.mesh import Parallel, join_mesh

BATCH, LENGTH = 4, 12
joined = cache(join_mesh)
"""The mesh of a configuration, joined once in a process group: gloo connects its processes anew each time."""


def batch(config: LoriiniConfig) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(3, config.vocab_size, (BATCH, LENGTH), generator=generator)


def backward(
    model: LoriiniForCausalLM,
    ids: Tensor,
    labels: dict[str, Tensor],
    parallel: Parallel,
    precision: str = "fp32",
) -> None:
    with autocast(precision):
        loss = model(ids, labels=ids, average=parallel.mean, **labels).loss
    (loss / parallel.world_size).backward()
