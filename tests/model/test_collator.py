"""Prompts and answers in a batch: padding, labels, and routing by the prompt alone."""

import numpy as np
import pytest
import torch

from loriini import PromptCollator
from tiny import tiny_model

EXAMPLES = [
    {"input_ids": np.array([5, 6, 7, 8], np.int32), "prompt_lengths": 3},
    {"input_ids": [9, 10], "completion_mask": [0, 1], "text": "other fields are left out"},
    {"input_ids": [3, 4, 5], "labels": [-100, -100, 5]},
]


def test_a_batch_is_padded_and_prompts_are_no_targets() -> None:
    batch = PromptCollator(pad_token_id=2)(EXAMPLES)
    assert {name: tensor.tolist() for name, tensor in batch.items()} == {
        "input_ids": [[5, 6, 7, 8], [9, 10, 2, 2], [3, 4, 5, 2]],
        "attention_mask": [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]],
        "labels": [[-100, -100, -100, 8], [-100, 10, -100, -100], [-100, -100, 5, -100]],
        "prompt_lengths": [3, 1, 2],
    }
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_labels_that_route_are_kept() -> None:
    labelled = [{**example, "routing_labels": i} for i, example in enumerate(EXAMPLES)]
    batch = PromptCollator(pad_token_id=2)(labelled)
    assert batch["routing_labels"].tolist() == [0, 1, 2]
    model = tiny_model("label")
    assert torch.isfinite(model(**batch).loss)


MASK, ANSWER = [0, 0, 1, 1, 0, 1], [-100, -100, 3, 9, -100, 6]


@pytest.mark.parametrize(
    ("fields", "labels"),
    [
        ({"completion_mask": MASK}, [-100, -100, 3, 4, -100, 6]),
        ({"labels": ANSWER}, ANSWER),
        ({"labels": ANSWER, "prompt_lengths": 3}, [-100, -100, -100, 9, -100, 6]),
        ({"completion_mask": MASK, "labels": [1, 2, 3, -100, 5, 6]}, [-100, -100, 3, -100, -100, 6]),
    ],
)
def test_tokens_that_an_example_masks_are_no_targets(fields: dict[str, object], labels: list[int]) -> None:
    """Such as the turns of a user, or the answer of a tool, between two answers."""
    example = {"input_ids": torch.tensor([1, 2, 3, 4, 5, 6]), **fields}
    given = {name: torch.as_tensor(value).clone() for name, value in example.items()}
    batch = PromptCollator(pad_token_id=0)([example, EXAMPLES[0]])
    assert batch["labels"].tolist() == [labels, [-100, -100, -100, 8, -100, -100]]
    assert all(torch.equal(torch.as_tensor(example[name]), given[name]) for name in given)


@pytest.mark.parametrize("name", ["lory", "prefix", "smear", "ec-segment"])
def test_training_routes_by_the_prompt_whatever_the_answer(name: str) -> None:
    model = tiny_model(name).train()
    gates = []
    for answer in ([8, 9], [30, 31]):
        examples = [{"input_ids": [5, 6, 7, *answer], "prompt_lengths": 3}]
        out = model(**PromptCollator(pad_token_id=2)(examples))
        gates.append(out.routings[0].gates)
    torch.testing.assert_close(*gates)
    alone = model.eval()(torch.tensor([[5, 6, 7]]), prompt_lengths=torch.tensor([3])).routings[0].gates
    torch.testing.assert_close(gates[0] if name != "ec-segment" else alone, alone)


@pytest.mark.parametrize(
    ("example", "reason"),
    [
        ({"input_ids": [1, 2]}, "give prompt_lengths, completion_mask or labels"),
        ({"input_ids": [1, 2], "prompt_lengths": 0}, "has a prompt of 0"),
        ({"input_ids": [1, 2], "prompt_lengths": 3}, "has a prompt of 3"),
        ({"input_ids": [1, 2], "completion_mask": [0, 1, 1]}, "has 2 .*, 2 .* and 3 in its completion_mask"),
        ({"input_ids": [0, 1, 2], "attention_mask": [0, 1, 1], "prompt_lengths": 1}, "attention_mask leaves"),
    ],
)
def test_an_example_without_a_prompt_is_refused(example: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PromptCollator(pad_token_id=0)([example])
