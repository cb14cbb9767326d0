"""The cost of making matrices whole for Muon: the bytes that it exchanges, and its transient memory."""

import math
from collections.abc import Iterator

import torch

from loriini.model import LoriiniConfig
from loriini.model.decoder import LoriiniDecoderLayer
from loriini.parallel.mesh import ShareExperts
from loriini.parallel.sharding import divided_dim
from loriini.train.optimizer import hidden_matrices

FLOAT32 = 4
"""Bytes of master weights and reduced gradients."""
BFLOAT16 = 2
"""Bytes of a number that Muon gathers on a GPU."""


def matrix_numbers(config: LoriiniConfig) -> int:
    """How many numbers are in the matrices that Muon updates, in all layers."""
    return config.num_hidden_layers * sum(shape.numel() for shape, _ in _hidden_shapes(config))


def muon_bytes(config: LoriiniConfig, shard: int, group: int, share_experts: ShareExperts) -> float:
    """Bytes that a process receives in a step on GPUs to have whole matrices for Muon.

    `shard` processes share a copy of the model, `group` of them its experts. Matrices split over n processes
    are gathered in bfloat16, each process receiving n - 1 parts; whole matrices of a stack are not sent.
    """
    shares = _matrix_shares(config, shard, group, share_experts)
    return BFLOAT16 * config.num_hidden_layers * sum(own * (split - 1) for own, split in shares)


def muon_transient_bytes(config: LoriiniConfig, shard: int, group: int, share_experts: ShareExperts) -> float:
    """Bytes that Muon needs on a GPU, besides its moment, to make the largest stack of matrices orthogonal.

    It holds in bfloat16 the mean, an iterate, and another iterate or, for matrices at least twice as wide as
    high, up to six squares (M, M): at most five numbers for each number of the whole matrices.
    """
    shares = _matrix_shares(config, shard, group, share_experts)
    return 5 * BFLOAT16 * max(own * split for own, split in shares)


def _matrix_shares(
    config: LoriiniConfig, shard: int, group: int, share_experts: ShareExperts
) -> Iterator[tuple[float, int]]:
    """For each stack in a layer: how many numbers a process holds, and how many processes split a matrix."""
    for shape, width_dim in _hidden_shapes(config):
        dims = (
            {0: shard} if width_dim is None else _expert_dims(shape, width_dim, shard, group, share_experts)
        )
        yield shape.numel() / shard, math.prod(n for dim, n in dims.items() if dim > 0 or len(shape) == 2)


def _hidden_shapes(config: LoriiniConfig) -> list[tuple[torch.Size, int | None]]:
    """Shapes of a layer's parameters that Muon updates, with the dimension of experts' width, else None."""
    with torch.device("meta"):
        layer = LoriiniDecoderLayer(config, layer_idx=0)
    experts = layer.mlp.experts
    width = {parameter: experts.width_dims[name] for name, parameter in experts.named_parameters()}
    return [(parameter.shape, width.get(parameter)) for parameter in hidden_matrices(layer)]


def _expert_dims(
    shape: torch.Size, width_dim: int, shard: int, group: int, share_experts: ShareExperts
) -> dict[int, int]:
    """The dimensions along which experts are split, and over how many processes."""
    whole = share_experts == "whole"
    group = 1 if whole and shape[0] == 1 else group
    of_group = {(0 if whole else width_dim): group} if group > 1 else {}
    dim = divided_dim(shape, shard // group, of_group) or 0
    return of_group | {dim: of_group.get(dim, 1) * (shard // group)}
