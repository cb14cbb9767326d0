"""Arguments of a forward call that routing depends on."""

from typing import Any

import pytest
import torch

from tiny import random_ids, tiny_model


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"routing_labels": torch.tensor([1])}, r"routing_labels is \(1,\); it must be .* \(2,\)"),
        ({"routing_labels": torch.tensor([1, 1, 1])}, r"routing_labels is \(3,\)"),
        ({"routing_labels": torch.tensor([1.0, 1.0])}, "routing_labels is .*LongTensor"),
        ({"prompt_lengths": torch.tensor([4])}, r"prompt_lengths is \(1,\)"),
        ({"prompt_lengths": [4, 4]}, "prompt_lengths is list"),
        ({"prompt_lengths": torch.tensor([4, 0])}, r"prompt_lengths are \[4, 0\]; each must be at least 1"),
        ({"attention_mask": torch.tensor([[1, 1, 0], [1, 1, 1]])}, r"attention_mask is \(2, 3\); it must be"),
        ({"attention_mask": torch.ones(2, 3)}, r"attention_mask is \(2, 3\); it must be"),
    ],
)
def test_arguments_of_another_shape_are_refused(arguments: dict[str, Any], reason: str) -> None:
    """They would be broadcast, or leave a sequence without an expert, silently."""
    with pytest.raises(ValueError, match=reason):
        tiny_model("label")(random_ids(2), **{"routing_labels": torch.tensor([0, 1]), **arguments})
