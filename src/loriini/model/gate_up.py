"""Weights that hold gate and up in one tensor: those of earlier versions, and of transformers' mixtures.

Earlier versions wrote `gate_up_proj` (E, 2, F, D), gate first, where `gate_proj` and `up_proj` (E, F, D) are
now. Model folders are converted by transformers as it loads them, and checkpoints by `train.checkpoint`.
"""

from collections.abc import Container, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import ConversionOps, WeightConverter, WeightRenaming

GATE_UP = "gate_up_proj"
PARTS = ("gate_proj", "up_proj")


def part_names(name: str) -> list[str]:
    """The names of the two parameters that replace one called `….gate_up_proj`."""
    return [name.removesuffix(GATE_UP) + part for part in PARTS]


def split_gate_up(name: str, weight: Tensor) -> dict[str, Tensor]:
    """`….gate_up_proj` (E, 2, F, D) as `….gate_proj` and `….up_proj` (E, F, D), which share no memory."""
    return dict(zip(part_names(name), (part.contiguous() for part in weight.unbind(1)), strict=True))


def saved_name(name: str, saved: Container[str]) -> str:
    """The name under which a checkpoint with the names `saved` holds the tensor `name`, or its part."""
    stem, _, last = name.rpartition(".")
    joined = f"{stem}.{GATE_UP}"
    return joined if last in PARTS and name not in saved and joined in saved else name


def join_gate_up(tensors: Mapping[str, Tensor], saved: Container[str]) -> dict[str, Tensor]:
    """Tensors to read what a checkpoint holds as `gate_up_proj`: parameters, their moments, and steps."""
    names = {joined for name in tensors if (joined := saved_name(name, saved)) != name}
    parts = {name: [tensors[part] for part in part_names(name)] for name in sorted(names)}
    return {name: torch.stack(p, dim=1) if p[0].dim() else p[0].clone() for name, p in parts.items()}


def copy_gate_up(joined: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Copy what was read into `join_gate_up`'s tensors into those that they stand for."""
    for name, tensor in joined.items():
        read = tensor.unbind(1) if tensor.dim() else (tensor, tensor)
        for part, value in zip(part_names(name), read, strict=True):
            tensors[part].copy_(value)


class SplitGateUp(ConversionOps):
    """`split_gate_up` as a step of transformers' loading."""

    def convert(self, input_dict: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        (tensors,) = input_dict.values()
        return split_gate_up(GATE_UP, tensors[0] if isinstance(tensors, list) else tensors)


class LoadOnly(WeightConverter):
    """A conversion that saving does not reverse."""

    def reverse_transform(self) -> WeightRenaming:
        return WeightRenaming(GATE_UP, GATE_UP)


def register_conversion(*class_names: str) -> None:
    """Make `from_pretrained` of these classes split `gate_up_proj`."""
    for name in class_names:
        conversion = LoadOnly(GATE_UP, list(PARTS), [SplitGateUp()])
        register_checkpoint_conversion_mapping(name, [conversion], overwrite=True)
