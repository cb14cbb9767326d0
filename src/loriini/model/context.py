"""The routing context of a forward call, from its arguments and its cache, and checks of the arguments."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from loriini.model.configuration import LoriiniConfig
from loriini.model.generate.cache import RoutedCacheLayer
from loriini.model.kernels.products import product_dtype
from loriini.routing import RoutingConfig
from loriini.routing.unit import RoutingContext

ROUTING_ARGUMENTS = ("prompt_lengths", "inference_routing", "routing_labels", "router_seeds")
"""Arguments of `forward` that other models do not have."""


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

    ValueError for arguments of another shape or type, for an `inference_routing` that the design does not
    have or another than its cache was filled in, for packed rows with a cache, a prompt or a mode, and where
    labels route, without any.
    """
    past = 0 if cache is None else cache.get_seq_length()
    first = None if cache is None else cast(RoutedCacheLayer, cache.layers[0])
    check_mode(config, inference_routing, first.mode if first is not None and past > 0 else None)
    mask_BH = padding_mask(config, attention_mask, x_BLD, past)
    check_shapes(x_BLD, routing_labels, prompt_lengths, router_seed, position_ids)
    if mask_BH is not None and bool(mask_BH.all()):
        mask_BH = None
    packed_BL = None
    if position_ids is not None:  # those of one row serve all
        packed_BL = packed_positions(position_ids.expand(len(x_BLD), -1), mask_BH)
    of_one_document = (cache, prompt_lengths, inference_routing)
    if packed_BL is not None and any(value is not None for value in of_one_document):
        raise ValueError(
            "position_ids start again within a row, so it holds several documents; "
            "a cache, prompt_lengths and inference_routing need one document a row"
        )
    if prompt_lengths is not None:
        prompt_lengths = prompt_lengths.to(x_BLD.device)
    if first is not None and past == 0:  # its later calls are routed as this one
        first.mode = inference_routing or "prompt"
        first.prompt_lengths = count_tokens(x_BLD, mask_BH) if prompt_lengths is None else prompt_lengths
    if first is not None:
        inference_routing, prompt_lengths = first.mode, first.prompt_lengths
    segment = inference_routing == "segment"
    if prompt_lengths is not None and past == 0:
        check_prompt(config, prompt_lengths, count_tokens(x_BLD, mask_BH), segment)
    context = RoutingContext(
        batch=x_BLD.shape[0],
        length=x_BLD.shape[1],
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
        context = replace(context, **_decided(config.routing, context, first))
    if config.routed_by_label and not context.decided and routing_labels is None:
        raise ValueError("scorer=label needs routing_labels, a LongTensor (B,): one label a sequence")
    return context


def padding_mask(config: LoriiniConfig, attention_mask: Any, x_BLD: Tensor, past: int) -> Tensor | None:
    """The mask of the history's tokens (B, H); None without one, and for a mask of pairs of tokens.

    ValueError for one of another shape, and for one of pairs where routing needs one of tokens.
    """
    batch, tokens = x_BLD.shape[0], past + x_BLD.shape[1]
    if attention_mask is None:
        return None
    if not isinstance(attention_mask, Tensor) or attention_mask.dim() != 2:
        design = config.design
        if design.data_dependent and (design.pooled or design.compares_units):
            raise ValueError(
                "routing reads padding and documents from an attention_mask of shape (B, tokens) and from "
                "position_ids; pass these instead of a mask of pairs of tokens"
            )
        return None
    if attention_mask.shape != (batch, tokens):
        raise ValueError(f"attention_mask is {tuple(attention_mask.shape)}; it must be ({batch}, {tokens})")
    return attention_mask


def _decided(design: RoutingConfig, context: RoutingContext, first: RoutedCacheLayer) -> dict[str, Any]:
    """`decided` and `decided_at` of a call with a cache.

    A new decision is made where a segment begins, and while the prompt that routes segment 1 is incomplete.
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
    """A boolean mask of pairs of tokens as what attention adds to its logits: 0 or −∞, in their dtype.

    Made once a call: torch would make one of a boolean mask in every layer, and keep all for the backward
    pass. Other masks, and all where no gradient is recorded, are returned as they are.
    """
    boolean = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() == 4
    if not boolean or not torch.is_grad_enabled():
        return mask
    added = torch.zeros(mask.shape, dtype=product_dtype(states), device=mask.device)
    return added.masked_fill_(~mask, -torch.inf)


def packed_positions(position_ids: Tensor, mask_BH: Tensor | None) -> Tensor | None:
    """Each token's position in its document (B, L), -1 for padding; None where each row is one document.

    A document starts where a token's position is not one more than that of the token before it, padding left
    out. A single token is part of a longer sequence.
    """
    length = position_ids.shape[1]
    if length == 1:
        return None
    real_BL = torch.ones_like(position_ids) if mask_BH is None else mask_BH[:, -length:].long()
    places_BL = torch.arange(length, device=position_ids.device).expand_as(real_BL)
    last_BL = places_BL.masked_fill(real_BL == 0, -1).cummax(1).values  # the last token up to each place
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


def check_mode(config: LoriiniConfig, inference_routing: str | None, filled: str | None) -> None:
    """ValueError for an unknown `inference_routing`, one that the design does not support, or that is not the
    one that a cache was `filled` in."""
    if inference_routing not in (None, "prompt", "segment"):
        raise ValueError(f"inference_routing is {inference_routing!r}; it must be 'prompt' or 'segment'")
    if inference_routing == "segment" and (problem := segment_problem(config)):
        raise ValueError(f"inference_routing='segment': {problem}")
    if filled is not None and inference_routing not in (None, filled):
        raise ValueError(
            f"inference_routing={inference_routing!r}, but this cache was filled with {filled!r}; "
            "pass the same, or a new cache"
        )


def segment_problem(config: LoriiniConfig) -> str | None:
    """Why a model cannot be routed by segment; None where it can, or where its gates depend on no tokens."""
    design = config.design
    if design.unit == "sequence" and design.data_dependent:
        return "this model routes whole sequences; use 'prompt'"
    return None


def check_shapes(
    x_BLD: Tensor,
    routing_labels: Tensor | None,
    prompt_lengths: Tensor | None,
    router_seed: Tensor | int,
    position_ids: Tensor | None,
) -> None:
    """ValueError for arguments that are not of the input's shape, and for empty prompts."""
    batch, length = x_BLD.shape[:2]
    if position_ids is not None and position_ids.shape not in ((batch, length), (1, length)):
        found = tuple(position_ids.shape)
        raise ValueError(f"position_ids are {found}; they must be ({batch}, {length}) or (1, {length})")
    seeds = router_seed if isinstance(router_seed, Tensor) and router_seed.dim() else None
    of_sequences = {"routing_labels": routing_labels, "prompt_lengths": prompt_lengths, "router_seeds": seeds}
    for name, value in of_sequences.items():
        if value is None:
            continue
        if not isinstance(value, Tensor) or value.is_floating_point() or value.shape != (batch,):
            found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"{name} is {found}; it must be a LongTensor of shape ({batch},)")
    if prompt_lengths is not None:
        check_not_empty(prompt_lengths, "prompt_lengths")


def check_not_empty(lengths_B: Tensor, name: str) -> None:
    """ValueError for prompts without tokens, except on a GPU, where the check would synchronise."""
    if lengths_B.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if bool((lengths_B < 1).any()):
        raise ValueError(
            f"{name} are {lengths_B.tolist()}; each must be at least 1. A sequence without tokens "
            "needs one, such as BOS, where attention_mask is 1"
        )


def check_attention(config: LoriiniConfig, context: RoutingContext) -> None:
    """ValueError for calls in which attention would mix sequences."""
    if context.packed and context.batch > 1 and "flash" in str(config._attn_implementation):
        raise ValueError(
            "flash attention keeps packed documents apart in a batch of one row only; pass one row, or load "
            "the model with attn_implementation='sdpa'"
        )


def check_names(others: Iterable[str]) -> None:
    """TypeError for a misspelt argument of routing; any other may be one of an attention kernel's."""
    for name in others if not torch.compiler.is_compiling() else ():
        if near := get_close_matches(name, ROUTING_ARGUMENTS, 1, cutoff=0.83):
            raise TypeError(f"unexpected keyword {name}; do you mean {near[0]}?")


def check_prompt(config: LoriiniConfig, lengths_B: Tensor, tokens_B: Tensor, segment: bool) -> None:
    """ValueError where a first call lacks tokens of a prompt that are routed together, or has none.

    A compiled graph reads no values.
    """
    design = config.design
    if torch.compiler.is_compiling() or design.unit == "token" or not design.data_dependent:
        return
    check_not_empty(lengths_B, "tokens by attention_mask")  # counted: those that were given are not
    together = design.segment_length if segment else sys.maxsize
    if bool((lengths_B.clamp(max=together) > tokens_B).any()):
        remedy = "pass the whole prompt"
        if segment_problem(config) is None:
            remedy += ", or with inference_routing='segment' at least its first segment"
        raise ValueError(f"the first call has a part of the tokens that are routed together; {remedy}")
