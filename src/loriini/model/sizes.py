"""A model's parameter counts, from one layer on the meta device, which has shapes but no numbers."""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from loriini.common.errors import InputError
from loriini.model.block import BLOCKS
from loriini.model.configuration import LoriiniConfig
from loriini.model.decoder import LoriiniDecoderLayer
from loriini.model.experts.stacked import Experts
from loriini.model.mixture import parts


@dataclass(frozen=True)
class Sizes:
    """Parameter counts by place; a tied head counts once."""

    experts: int
    """Routed experts of all layers."""
    layers: int
    """The rest of all layers, routers included."""
    root: int
    """Outside the layers: embeddings, learned positions, last norm and output head."""
    routers: int
    """The part of `layers` in routers."""
    looked_up: int
    """The part of `root` that tokens and positions look up; a tied embedding counts as the head instead."""
    expert: int
    """One expert."""
    scored: int
    """Parameters of one expert needed to compute its score; 0 unless experts score themselves."""


def count_sizes(config: LoriiniConfig) -> Sizes:
    """The sizes of a configuration's model. InputError if a matrix is too large for a tensor."""
    block, layers = BLOCKS[config.block], config.num_hidden_layers
    try:
        with torch.device("meta"):
            layer, norm, positions = (
                LoriiniDecoderLayer(config, 0),
                block.norm(config),
                block.positions(config),
            )
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise InputError(
            "a matrix of the model has more numbers than a tensor can have, and than this machine has memory "
            "for; take a smaller model"
        ) from error
    held = Counter[str]()
    for parameter, part in parts(layer).items():
        held[part] += parameter.numel()
    embedding = config.vocab_size * config.hidden_size
    looked_up = _numbers(positions) + (0 if config.tie_word_embeddings else embedding)
    head = embedding + (config.vocab_size if config.lm_head_bias else 0)
    routers = held["router"] * (layers if config.routing.scope == "layer" else 1)
    return Sizes(
        experts=layers * held["experts"],
        layers=layers * held["rest"] + routers,
        root=looked_up + head + _numbers(norm),
        routers=routers,
        looked_up=looked_up,
        expert=held["experts"] // config.num_experts,
        scored=_below(config, layer.mlp.experts) if config.scored_by_norm else 0,
    )


def _numbers(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _below(config: LoriiniConfig, experts: Experts) -> int:
    """How many of an expert's parameters are used to compute the node that scores it."""
    used: list[int] = []

    def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None, /) -> Tensor:
        used.append(weight.numel() + (0 if bias is None else bias.numel()))
        return linear(x, weight, bias)

    weights = {name: weight[0] for name, weight in experts.stacked().items()}
    experts.node(config.routing.node, torch.empty(1, config.hidden_size, device="meta"), weights, affine)
    return sum(used)
