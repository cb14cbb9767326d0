"""The modes of inference, and the reference for all: one pass over a sequence alone, no cache, no padding."""

import torch
from torch import Tensor

from loriini import DESIGNS, LoriiniForCausalLM
from tiny import EVERY, SEGMENT, label_arguments

SEGMENTED = [name for name in EVERY if DESIGNS[name].segmented]
CASES = [*((name, "prompt") for name in EVERY), *((name, "segment") for name in SEGMENTED)]
MERGING_CASES = [("lory", "prompt"), ("lory", "segment"), ("prefix", "segment"), ("ec-segment", "segment")]
OTHERS = ["segment-then-token", "smear", "label", "global-top2", "aoe", "ec-token"]
GENERATING_CASES = [*MERGING_CASES, *((name, "prompt") for name in OTHERS)]
"""One design of every kind of unit and cache."""
PROMPTS = [1, SEGMENT - 1, SEGMENT, 2 * SEGMENT + 1]


def whole(
    model: LoriiniForCausalLM, ids: Tensor, prompt: int, mode: str, labels: Tensor | None = None
) -> Tensor:
    """The logits (L, V) of one sequence (L,), by one pass without a cache."""
    arguments = {} if labels is None else {"routing_labels": labels}
    length = torch.tensor([prompt])
    return model(
        ids[None], prompt_lengths=length, inference_routing=mode, use_cache=False, **arguments
    ).logits[0]


def label_of(model: LoriiniForCausalLM, row: int, batch: int) -> Tensor | None:
    labels = label_arguments(model, batch).get("routing_labels")
    return None if labels is None else labels[row : row + 1]
