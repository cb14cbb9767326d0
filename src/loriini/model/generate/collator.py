"""Prompts and answers as batches for fine-tuning, routed by the prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from loriini.model.loss import IGNORE_INDEX


@dataclass(frozen=True)
class PromptCollator:
    """Pads tokenized examples of a prompt and its answer, and reports how long each prompt is.

    A segment-routed model would route a short example by the mean of all its tokens, the answer included.
    With `prompt_lengths` it routes in training as in generation: by the prompt alone.

    An example holds `input_ids` without padding, prompt first, and its prompt's length as `prompt_lengths`,
    as the zeros of a `completion_mask`, or as the labels of -100 that TRL gives a prompt. After the prompt,
    the loss counts the tokens that `completion_mask` and `labels` count; without either, all tokens.
    `routing_labels` are kept, other fields dropped.
    """

    pad_token_id: int

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """`input_ids`, `attention_mask` and `labels` (B, L), padded on the right, and `prompt_lengths` (B,).

        All are int64, as are `routing_labels` (B,) where the examples have them. ValueError for an example
        without a prompt, or with fields of different lengths.
        """
        read = [_read(example) for example in examples]
        batch = {
            "input_ids": pad_sequence([ids for ids, _, _ in read], True, self.pad_token_id),
            "attention_mask": pad_sequence([torch.ones_like(ids) for ids, _, _ in read], True),
            "labels": pad_sequence([labels for _, labels, _ in read], True, IGNORE_INDEX),
            "prompt_lengths": torch.tensor([length for _, _, length in read]),
        }
        if "routing_labels" in examples[0]:
            batch["routing_labels"] = torch.tensor([int(each["routing_labels"]) for each in examples])
        return batch


def _read(example: Mapping[str, Any]) -> tuple[Tensor, Tensor, int]:
    """An example's ids (L,), its labels (L,), and the length of its prompt."""
    ids_L = torch.as_tensor(example["input_ids"], dtype=torch.long)
    labels_L = torch.as_tensor(example.get("labels", ids_L), dtype=torch.long)
    counted_L = torch.as_tensor(example.get("completion_mask", torch.ones_like(ids_L))).bool()
    if not len(ids_L) == len(labels_L) == len(counted_L):
        raise ValueError(
            f"an example has {len(ids_L)} input_ids, {len(labels_L)} labels and {len(counted_L)} in its "
            "completion_mask; give each token one of each"
        )
    if not torch.as_tensor(example.get("attention_mask", 1)).all():
        raise ValueError("an example's attention_mask leaves out tokens; give examples without padding")
    labels_L = labels_L.masked_fill(~counted_L, IGNORE_INDEX)
    leading = int((labels_L != IGNORE_INDEX).cumsum(0).eq(0).sum())
    length = int(example.get("prompt_lengths", leading))
    if not 0 < length <= len(ids_L):
        raise ValueError(
            f"an example of {len(ids_L)} tokens has a prompt of {length}; a prompt is at least one token, "
            "such as BOS, and at most the whole example; give prompt_lengths, completion_mask or labels "
            "(Trainer keeps them with remove_unused_columns=False)"
        )
    labels_L[:length] = IGNORE_INDEX
    return ids_L, labels_L, length
