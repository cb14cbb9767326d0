"""The estimate of designs with parts of an extension."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from extensions import example, tables_restored
from loriini.common.errors import InputError
from loriini.estimate.activations import count_activations
from loriini.routing import DESIGNS, RoutingConfig, register_selection
from tiny import tiny_config


def no_token_alone(logits_NE: Tensor, design: RoutingConfig, valid: Any, training: bool) -> Tensor:
    mask_NE = logits_NE > 0
    return mask_NE if int(mask_NE.sum()) else ~mask_NE


def test_a_part_that_reads_values_is_refused_with_the_remedy() -> None:
    with tables_restored():
        register_selection("mine", no_token_alone)
        design = replace(DESIGNS["mixtral"], selection="mine", load_balance=0)
        with pytest.raises(InputError, match="--micro_batch_size"):
            count_activations(tiny_config(design), 2, 16, torch.float32)


def test_the_example_is_counted() -> None:
    with tables_restored():
        example()
        assert count_activations(tiny_config("cosine"), 2, 16, torch.float32).layer > 0
