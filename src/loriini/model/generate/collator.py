"""Prompts and answers as batches for fine-tuning, routed by the prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from loriini.model.loss import IGNORE_INDEX

PER_TOKEN = ("input_ids", "labels", "completion_mask")


@dataclass(frozen=True)
class PromptCollator:
    """Pads tokenized examples of a prompt and its answer, and reports how long each prompt is.

    A segment-routed model would route a short example by the mean of all its tokens, the answer included.
    With `prompt_lengths` it routes in training as in generation: by the prompt alone.

    An example holds `input_ids`, prompt first, and its prompt's length as `prompt_lengths`, as the zeros of a
    `completion_mask`, or as the labels of -100 that TRL gives a prompt. After the prompt, the loss counts the
    tokens that `completion_mask` and `labels` count, all if there are neither. What an `attention_mask`
    leaves out at the end, as padding, is cut off; `routing_labels` are kept, other fields left out.
    """

    pad_token_id: int
    train_on_prompt: bool = False
    """Whether the loss counts the prompt's tokens too.

    A design that pools states routes a prompt by all of its tokens, so that each token's loss depends on
    those after it. The loss is then too low, and the router learns to leak later tokens.
    """

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """`input_ids`, `attention_mask` and `labels` (B, L), padded on the right, and `prompt_lengths` (B,).

        All are int64, as are `routing_labels` (B,) where the examples have them. ValueError for an example
        without a prompt, or with fields of different lengths.
        """
        examples = [without_padding(example) for example in examples]
        ids = [torch.as_tensor(example["input_ids"], dtype=torch.long) for example in examples]
        lengths_B = torch.tensor([prompt_length(example) for example in examples])
        labels = [targets_of(example, self.train_on_prompt) for example in examples]
        mask_BL = pad_sequence([torch.ones_like(i) for i in ids], batch_first=True)
        input_ids = pad_sequence(ids, batch_first=True, padding_value=self.pad_token_id)
        of_sequences = {"prompt_lengths": lengths_B}
        if "routing_labels" in examples[0]:
            of_sequences["routing_labels"] = torch.tensor([int(each["routing_labels"]) for each in examples])
        return {
            "input_ids": input_ids,
            "attention_mask": mask_BL,
            "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORE_INDEX),
            **of_sequences,
        }


def without_padding(example: Mapping[str, Any]) -> Mapping[str, Any]:
    """An example without the padding that its `attention_mask` marks at the end.

    ValueError for a mask that leaves out anything else.
    """
    if "attention_mask" not in example:
        return example
    mask_L = torch.as_tensor(example["attention_mask"]).bool()
    length = int(mask_L.sum())
    if len(mask_L) != len(example["input_ids"]) or mask_L[length:].any():
        raise ValueError(
            f"an example of {len(example['input_ids'])} tokens has an attention_mask of {len(mask_L)} that "
            "is not ones and then zeros; pad it on the right"
        )
    cut = {name: example[name][:length] for name in PER_TOKEN if name in example}
    return {**example, **cut}


def prompt_length(example: Mapping[str, Any]) -> int:
    """The length of an example's prompt, in tokens. ValueError where there is none."""
    if "prompt_lengths" in example:
        length = int(example["prompt_lengths"])
    elif "completion_mask" in example:
        length = leading(example["completion_mask"], 0)
    elif "labels" in example:
        length = leading(example["labels"], IGNORE_INDEX)
    else:
        raise ValueError(
            "an example needs prompt_lengths, completion_mask or labels, to find its prompt; Trainer keeps "
            "them all with remove_unused_columns=False"
        )
    if not 0 < length <= len(example["input_ids"]):
        raise ValueError(
            f"an example of {len(example['input_ids'])} tokens has a prompt of {length}; a prompt is at "
            "least one token, such as BOS, and at most the whole example"
        )
    return length


def targets_of(example: Mapping[str, Any], train_on_prompt: bool) -> Tensor:
    """An example's labels (L,), IGNORE_INDEX where its fields, or its prompt, leave a token out of the loss.

    ValueError where fields differ in length.
    """
    ids_L = torch.as_tensor(example["input_ids"], dtype=torch.long)
    labels_L = torch.as_tensor(example.get("labels", ids_L), dtype=torch.long)
    counted_L = torch.as_tensor(example.get("completion_mask", torch.ones_like(ids_L))).bool()
    if not len(ids_L) == len(labels_L) == len(counted_L):
        raise ValueError(
            f"an example has {len(ids_L)} input_ids, {len(labels_L)} labels and {len(counted_L)} in its "
            "completion_mask; give each token one of each"
        )
    labels_L = labels_L.masked_fill(~counted_L, IGNORE_INDEX)
    length = prompt_length(example)
    labels_L[:length] = ids_L[:length] if train_on_prompt else IGNORE_INDEX
    return labels_L


def leading(values: Any, value: int) -> int:
    """How many of `values` are equal to `value` before the first that is not."""
    return int((torch.as_tensor(values) != value).cumsum(0).eq(0).sum())
