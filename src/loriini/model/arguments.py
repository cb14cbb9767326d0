"""The arguments of a forward call: their names, and what they must be."""

from collections.abc import Iterable
from difflib import get_close_matches

import torch
from torch import Tensor

from loriini.model.configuration import LoriiniConfig
from loriini.routing.unit import RoutingContext

ROUTING_ARGUMENTS = ("prompt_lengths", "inference_routing", "routing_labels", "router_seeds")
"""Arguments of `forward` that other models do not have."""
KEYWORDS = (
    *ROUTING_ARGUMENTS,
    "attention_mask",
    "average",
    "cache",
    "inputs_embeds",
    "labels",
    "logits_to_keep",
    "num_items_in_batch",
    "output_attentions",
    "output_hidden_states",
    "past_key_values",
    "position_ids",
    "reduction",
    "return_dict",
    "shift_labels",
    "skip_logits",
    "use_cache",
)
"""Keywords of a call of the model."""


def check_mode(config: LoriiniConfig, inference_routing: str | None) -> None:
    """ValueError for an unknown `inference_routing`, or one that this design does not support."""
    if inference_routing not in (None, "prompt", "segment"):
        raise ValueError(f"inference_routing is {inference_routing!r}; it must be 'prompt' or 'segment'")
    if inference_routing == "segment" and (problem := segment_problem(config)):
        raise ValueError(f"inference_routing='segment': {problem}")


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
    of_sequences = {
        "routing_labels": routing_labels,
        "prompt_lengths": prompt_lengths,
        "router_seeds": seeds,
    }
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


def check_labels(labels_B: Tensor | None, num_experts: int) -> None:
    """ValueError where the label scorer has no labels, or one without an expert.

    A compiled graph reads no values; `one_hot` itself refuses wrong ones.
    """
    if labels_B is None:
        raise ValueError("scorer=label needs routing_labels, a LongTensor (B,): one label a sequence")
    if torch.compiler.is_compiling():
        return
    low, high = map(int, labels_B.aminmax())
    if low < 0 or high >= num_experts:
        raise ValueError(
            f"routing_labels are {low}..{high}; "
            f"with {num_experts} experts they must be in 0..{num_experts - 1}"
        )


def check_attention(config: LoriiniConfig, context: RoutingContext) -> None:
    """ValueError for calls in which attention would mix sequences."""
    if context.packed and context.batch > 1 and "flash" in str(config._attn_implementation):
        raise ValueError(
            "flash attention keeps packed documents apart in a batch of one row only; pass one row, or load "
            "the model with attn_implementation='sdpa'"
        )


def check_names(others: Iterable[str]) -> None:
    """TypeError for a misspelt keyword of ours; any other may be one of an attention kernel's."""
    for name in others if not torch.compiler.is_compiling() else ():
        if near := get_close_matches(name, KEYWORDS, 1, cutoff=0.83):
            raise TypeError(f"unexpected keyword {name}; do you mean {near[0]}?")


def check_prompt(config: LoriiniConfig, lengths_B: Tensor, tokens_B: Tensor, together: int) -> None:
    """ValueError where a first call lacks some of the tokens of a prompt that are routed `together`.

    A compiled graph reads no values.
    """
    if torch.compiler.is_compiling() or not together:
        return
    if bool((lengths_B.to(tokens_B.device).clamp(max=together) > tokens_B).any()):
        remedy = "pass the whole prompt"
        if segment_problem(config) is None:
            remedy += ", or with inference_routing='segment' at least its first segment"
        raise ValueError(f"the first call has a part of the tokens that are routed together; {remedy}")


def or_default(argument: bool | None, default: bool) -> bool:
    """An argument of a call, or the configuration's value where it is None."""
    return default if argument is None else argument
