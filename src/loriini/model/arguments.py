"""Checks of the arguments of a forward call."""

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor

from loriini.model.configuration import LoriiniConfig

ROUTING_ARGUMENTS = ("prompt_lengths", "inference_routing", "routing_labels", "router_seeds")
"""Arguments of `forward` that other models do not have."""


def check_names(others: Iterable[str]) -> None:
    """TypeError for a misspelt routing argument; other names may be arguments of an attention kernel."""
    if torch.compiler.is_compiling():
        return
    for name in others:
        if near := get_close_matches(name, ROUTING_ARGUMENTS, 1, cutoff=0.83):
            raise TypeError(f"unexpected keyword {name}; do you mean {near[0]}?")


def check_inference_routing(config: LoriiniConfig, inference_routing: str | None, filled: str | None) -> None:
    """ValueError for an `inference_routing` that is unknown, that the design does not allow, or that differs
    from the one that the cache was `filled` with."""
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
    """Why a model cannot be routed by segment; None if it can, or if its gates depend on no tokens."""
    design = config.design
    if design.unit == "sequence" and design.data_dependent:
        return "this model routes whole sequences; use 'prompt'"
    return None


def check_mask(config: LoriiniConfig, attention_mask: Any, batch: int, tokens: int) -> None:
    """ValueError for a mask that is not (B, H), or masks token pairs if routing pools or compares units."""
    design = config.design
    if attention_mask is None:
        return
    if isinstance(attention_mask, Tensor) and attention_mask.dim() == 2:
        if (found := tuple(attention_mask.shape)) != (batch, tokens):
            raise ValueError(f"attention_mask is {found}; it must be ({batch}, {tokens})")
    elif design.data_dependent and (design.pooled or design.compares_units):
        raise ValueError(
            "routing reads padding and documents from an attention_mask of shape (B, tokens) and from "
            "position_ids; pass these instead of a mask of pairs of tokens"
        )


def check_shapes(
    batch: int,
    length: int,
    routing_labels: Tensor | None,
    prompt_lengths: Tensor | None,
    router_seed: Tensor | int,
    position_ids: Tensor | None,
) -> None:
    """ValueError for arguments whose shape does not fit the input, and for empty prompts."""
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
    """ValueError for prompts without tokens; not checked on a GPU, where that would synchronise."""
    if lengths_B.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if bool((lengths_B < 1).any()):
        raise ValueError(
            f"{name} are {lengths_B.tolist()}; each must be at least 1. A sequence without tokens "
            "needs one, such as BOS, where attention_mask is 1"
        )


def check_packed(config: LoriiniConfig, batch: int, of_one_document: Iterable[Any]) -> None:
    """ValueError for packed rows with an argument that needs one document a row, or with an attention kernel
    that would mix documents."""
    if any(value is not None for value in of_one_document):
        raise ValueError(
            "position_ids start again within a row, so it holds several documents; "
            "a cache, prompt_lengths and inference_routing need one document a row"
        )
    if batch > 1 and "flash" in str(config._attn_implementation):
        raise ValueError(
            "flash attention keeps packed documents apart in a batch of one row only; pass one row, or load "
            "the model with attn_implementation='sdpa'"
        )


def check_prompt(config: LoriiniConfig, lengths_B: Tensor, tokens_B: Tensor, segment: bool) -> None:
    """ValueError if a first call has no tokens, or not all prompt tokens that are routed together.

    Not checked in a compiled graph, which cannot read values.
    """
    design = config.design
    if torch.compiler.is_compiling() or design.unit == "token" or not design.data_dependent:
        return
    check_not_empty(lengths_B, "tokens by attention_mask")  # given lengths are checked already
    together = design.segment_length if segment else sys.maxsize
    if bool((lengths_B.clamp(max=together) > tokens_B).any()):
        remedy = "pass the whole prompt"
        if segment_problem(config) is None:
            remedy += ", or with inference_routing='segment' at least its first segment"
        raise ValueError(f"the first call has a part of the tokens that are routed together; {remedy}")
