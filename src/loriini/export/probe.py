"""Compare an export with its model, by their logits for some ids."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from loriini.common.errors import InputError
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.weights.loading import check_finite

ROW_BYTES = 16
"""In `torch.nn.functional.grouped_mm`, the bytes of a row are a multiple of this."""


def _not_multiplied(weights: Mapping[str, Tensor]) -> str | None:
    """Why transformers cannot multiply by these experts: rows not a multiple of ROW_BYTES. None if it can."""
    for name, weight in weights.items():
        row = weight.shape[-1] * weight.dtype.itemsize
        if weight.dim() == 3 and row % ROW_BYTES:
            return (
                f"{name} has rows of {row} bytes, and transformers needs a multiple of {ROW_BYTES}; use --to "
                "hf, or train experts of another width"
            )
    return None


@torch.no_grad()
def cast_weights(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Cast a model's saved weights; the rest, such as rotary frequencies, keeps its type, as in loading."""
    computed = [
        (module, name, buffer)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name in module._non_persistent_buffers_set
    ]
    model.to(dtype)  # our routers keep their balancing biases in float32
    for module, name, buffer in computed:
        setattr(module, name, buffer)


@dataclass(frozen=True)
class Probe:
    """A model's logits (B, L, V) for some ids (B, L), to compare exports with."""

    ids_BL: Tensor
    routing: Mapping[str, Any]
    """What routed the model; an export without its routers needs none of it."""
    logits_BLV: Tensor

    @property
    def scale(self) -> float:
        """The largest logit."""
        return float(self.logits_BLV.abs().max())

    @torch.no_grad()
    def difference(self, exported: PreTrainedModel) -> float:
        """The largest difference of a logit; NaN or infinity if any logit is not finite.

        InputError for experts that transformers cannot compute with.
        """
        routing = {}
        if isinstance(exported, LoriiniForCausalLM):
            routing = dict(self.routing)
        elif reason := _not_multiplied(exported.state_dict()):
            raise InputError(reason)
        return float((self.logits_BLV - exported(self.ids_BL, **routing).logits).abs().max())


def longest_probe(config: LoriiniConfig, prompt_BL: Tensor | None) -> int:
    """The most tokens of a forward pass in which a prompt (1, L) has the rotary positions it is routed with.

    With longrope, all positions have other factors once the pass is longer than the original context.
    """
    longest, scaling = config.max_position_embeddings, config.rope_parameters or {}
    if prompt_BL is None or scaling.get("rope_type") != "longrope":
        return longest
    original = int(scaling["original_max_position_embeddings"])
    return longest if prompt_BL.shape[1] > original else min(longest, original)


@torch.no_grad()
def probe(model: LoriiniForCausalLM, prompt_BL: Tensor | None, labels_B: Tensor | None) -> Probe:
    """The model's logits over a prompt and random tokens after it; InputError where they are not finite.

    A prompt routes the model, as in generation. A model that routes by label is probed with every label if
    none is given. If no random token fits after the prompt, only the prompt's logits are compared.
    """
    vocab_size, context = model.config.vocab_size, longest_probe(model.config, prompt_BL)
    generator = torch.Generator().manual_seed(0)
    ids_BL = torch.randint(vocab_size, (1, min(context, 32)), generator=generator).to(model.device)
    if model.config.routed_by_label and labels_B is None:
        labels_B = torch.arange(model.config.num_experts, device=model.device)
        ids_BL = ids_BL.expand(len(labels_B), -1)
    routing: dict[str, Any] = {"routing_labels": labels_B}
    if prompt_BL is not None:
        ids_BL = torch.cat([prompt_BL, ids_BL], dim=1)[:, :context]
        routing["prompt_lengths"] = torch.tensor([prompt_BL.shape[1]])
    logits_BLV = model(ids_BL, **routing).logits
    check_finite(logits_BLV, "the model's logits")
    return Probe(ids_BL, routing, logits_BLV)
