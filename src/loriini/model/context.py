"""The routing context of a forward call, from its arguments and its cache."""

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from loriini.model.arguments import (
    check_inference_routing,
    check_mask,
    check_packed,
    check_prompt,
    check_shapes,
)
from loriini.model.configuration import LoriiniConfig
from loriini.model.generate.cache import RoutedCacheLayer
from loriini.model.kernels.products import product_dtype
from loriini.routing import RoutingConfig
from loriini.routing.unit import RoutingContext


def routing_context(
    config: LoriiniConfig,
    x_BLD: Tensor,
    attention_mask: Tensor | None,
    cache: Cache | None,
    *,
    position_ids: Tensor | None,
    routing_labels: Tensor | None,
    prompt_lengths: Tensor | None,
    inference_routing: str | None,
    router_seed: Tensor | int,
) -> RoutingContext:
    """The context of a call. `cache` has routed layers; `router_seed` is the random scorer's.

    ValueError for a wrong shape or type, an `inference_routing` that the design or the filled cache does not
    allow, packed rows with a cache or arguments of prompts, and missing prompt tokens or `routing_labels`.
    """
    batch, length = x_BLD.shape[:2]
    past = 0 if cache is None else cache.get_seq_length()
    first = None if cache is None else cast(RoutedCacheLayer, cache.layers[0])
    filled = first.inference_routing if first is not None and past > 0 else None
    check_inference_routing(config, inference_routing, filled)
    check_mask(config, attention_mask, batch, past + length)
    check_shapes(batch, length, routing_labels, prompt_lengths, router_seed, position_ids)
    mask_BH = padding_mask(attention_mask)
    packed_BL = None
    if position_ids is not None:  # one row may serve all
        packed_BL = packed_positions(position_ids.expand(batch, -1), mask_BH)
    if packed_BL is not None:
        check_packed(config, batch, (cache, prompt_lengths, inference_routing))
    if prompt_lengths is not None:
        prompt_lengths = prompt_lengths.to(x_BLD.device)
    if first is not None:
        if past == 0:
            first.inference_routing = inference_routing or "prompt"
            first.prompt_lengths = count_tokens(x_BLD, mask_BH) if prompt_lengths is None else prompt_lengths
        inference_routing, prompt_lengths = first.inference_routing, first.prompt_lengths
    segment = inference_routing == "segment"
    if prompt_lengths is not None and past == 0:
        check_prompt(config, prompt_lengths, count_tokens(x_BLD, mask_BH), segment)
    context = RoutingContext(
        batch=batch,
        length=length,
        past=past,
        positions_BH=packed_BL if mask_BH is None or packed_BL is not None else _positions(mask_BH),
        padded=mask_BH is not None,
        packed=packed_BL is not None,
        prompt_lengths_B=prompt_lengths,
        inference_routing="segment" if segment else "prompt",
        labels_B=routing_labels,
        router_seed=router_seed,
        device=x_BLD.device,
    )
    if first is not None:
        context = replace(context, **_decided(config.design, context, first))
    if config.routed_by_label and not context.decided and routing_labels is None:
        raise ValueError("scorer=label needs routing_labels, a LongTensor (B,): one label a sequence")
    return context


def padding_mask(attention_mask: Any) -> Tensor | None:
    """The mask of the history's tokens (B, H); None without padding, or for a mask of token pairs."""
    if not isinstance(attention_mask, Tensor) or attention_mask.dim() != 2 or bool(attention_mask.all()):
        return None
    return attention_mask


def _decided(design: RoutingConfig, context: RoutingContext, first: RoutedCacheLayer) -> dict[str, Any]:
    """`decided` and `decided_at` of a call with a cache.

    A call decides anew if a segment begins in it, or if it has prompt tokens that route segment 1.
    """
    if design.unit == "token":
        return {}
    kept = context.past > 0 and first.decided_at > 0
    if design.unit == "sequence" or context.prompt_routed:
        return {"decided": kept, "decided_at": 1}
    assert context.prompt_lengths_B is not None
    T, start = design.segment_length, context.past if kept else 0
    positions = context.positions()[:, start:]
    first_B1 = context.prompt_lengths_B.clamp(max=T)[:, None]
    deciding = ((positions % T == 0) | ((positions >= 0) & (positions < first_B1))).any(0).nonzero()
    if len(deciding) == 0:
        return {"decided": kept}
    return {"decided_at": start + int(deciding.max()) + 1}


def additive_mask(mask: Any, states: Tensor) -> Any:
    """A boolean mask of pairs of tokens as the 0 or −∞ that attention adds to its logits, in their dtype.

    Made once per call: from a boolean mask torch would make one in every layer, and keep all for the backward
    pass. Other masks, and all masks while no gradient is recorded, are returned unchanged.
    """
    boolean = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() == 4
    if not boolean or not torch.is_grad_enabled():
        return mask
    added = torch.zeros(mask.shape, dtype=product_dtype(states), device=mask.device)
    return added.masked_fill_(~mask, -torch.inf)


def packed_positions(position_ids: Tensor, mask_BH: Tensor | None) -> Tensor | None:
    """Each token's position in its document (B, L), -1 for padding; None where each row is one document.

    A document starts where a token's position is not one more than that of the token before it, not counting
    padding. A single token continues its row's document. ValueError for padding inside a document.
    """
    length = position_ids.shape[1]
    if length == 1:
        return None
    real_BL = torch.ones_like(position_ids) if mask_BH is None else mask_BH[:, -length:].long()
    places_BL = torch.arange(length, device=position_ids.device).expand_as(real_BL)
    last_BL = places_BL.masked_fill(real_BL == 0, -1).cummax(1).values  # the last token up to here
    before_BL = torch.nn.functional.pad(last_BL[:, :-1], (1, 0), value=-1)
    follows_BL = position_ids == position_ids.gather(1, before_BL.clamp(min=0)) + 1
    starts_BL = (real_BL > 0) & ~(follows_BL & (before_BL >= 0))
    if not bool((starts_BL.sum(1) > 1).any()):
        return None
    after_padding_BL = (real_BL > 0) & (torch.nn.functional.pad(real_BL[:, :-1], (1, 0)) == 0)
    if bool((after_padding_BL & ~starts_BL).any()):
        raise ValueError(
            "a row holds several documents, and attention_mask has padding inside of one, where attention "
            "would split it; put padding between documents or at the ends of the row"
        )
    counts_BL = real_BL.cumsum(1) - 1
    begins_BL = counts_BL.masked_fill(~starts_BL, 0).cummax(1).values
    return (counts_BL - begins_BL).masked_fill(real_BL == 0, -1)


def count_tokens(inputs: Tensor, mask_BL: Tensor | None) -> Tensor:
    """How many tokens each sequence of ids (B, L) or states (B, L, D) has, padding not counted; (B,)."""
    if mask_BL is None:
        return torch.full(inputs.shape[:1], inputs.shape[1], device=inputs.device)
    return mask_BL.long().sum(1)


def _positions(mask_BH: Tensor) -> Tensor:
    """Each token's position in its sequence (B, H), -1 for padding."""
    counted_BH = mask_BH.to(torch.long)
    return (counted_BH.cumsum(1) - 1).masked_fill(counted_BH == 0, -1)
