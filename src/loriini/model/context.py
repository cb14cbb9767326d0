"""The routing context of a forward call, from its arguments and its cache."""

from typing import cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from loriini.model.cache import RoutedCacheLayer
from loriini.routing import RoutingConfig
from loriini.routing.unit import RoutingContext


def routing_context(
    design: RoutingConfig,
    x_BLD: Tensor,
    attention_mask: Tensor | None,
    cache: Cache | None,
    *,
    routing_labels: Tensor | None,
    prompt_lengths: Tensor | None,
    inference_routing: str | None,
    draw: Tensor | int,
) -> RoutingContext:
    """The context of a call; ValueError for an `inference_routing` that the design does not have.

    `cache` has routed layers; `draw` is the random scorer's.
    """
    if inference_routing not in (None, "prompt", "segment"):
        raise ValueError(f"inference_routing is {inference_routing!r}; it must be 'prompt' or 'segment'")
    if inference_routing == "segment" and design.unit == "sequence":
        raise ValueError(
            "inference_routing='segment' needs a design that routes segments; this one routes sequences"
        )
    mask_BH = attention_mask
    if mask_BH is not None and (mask_BH.dim() != 2 or bool(mask_BH.all())):
        mask_BH = None
    past = 0 if cache is None else cache.get_seq_length()
    segment = inference_routing == "segment"
    if cache is not None:
        new_tokens_B = count_tokens(x_BLD, None if mask_BH is None else mask_BH[:, past:])
        prompt_lengths = _cached_prompt_lengths(cache, new_tokens_B, prompt_lengths, whole=not segment)
    return RoutingContext(
        batch=x_BLD.shape[0],
        length=x_BLD.shape[1],
        past=past,
        positions_BH=None if mask_BH is None else _positions(mask_BH),
        prompt_lengths_B=None if prompt_lengths is None else prompt_lengths.to(x_BLD.device),
        inference_routing="segment" if segment else "prompt",
        labels_B=routing_labels,
        draw=draw,
        device=x_BLD.device,
    )


def count_tokens(inputs: Tensor, mask_BL: Tensor | None) -> Tensor:
    """How many tokens each sequence of ids (B, L) or states (B, L, D) has, padding not counted; (B,)."""
    if mask_BL is None:
        return torch.full(inputs.shape[:1], inputs.shape[1], device=inputs.device)
    return mask_BL.sum(1)


def _positions(mask_BH: Tensor) -> Tensor:
    """Each token's position in its sequence (B, H), -1 for padding."""
    counted_BH = mask_BH.to(torch.long)
    return (counted_BH.cumsum(1) - 1).masked_fill(counted_BH == 0, -1)


def _cached_prompt_lengths(cache: Cache, new_tokens_B: Tensor, given_B: Tensor | None, whole: bool) -> Tensor:
    """The prompt lengths (B,) of a cache: `given_B` in its first call, or else all tokens of that call.

    ValueError where the prompt must come `whole` and the first call has fewer tokens.
    """
    kept = cast(RoutedCacheLayer, cache.layers[0]).kept
    if cache.get_seq_length() == 0:
        kept["prompt_lengths"] = new_tokens_B if given_B is None else given_B.to(new_tokens_B.device)
        if whole and bool((kept["prompt_lengths"] > new_tokens_B).any()):
            raise ValueError("a prompt must be passed whole, but its first call has fewer tokens")
    return kept["prompt_lengths"]
