"""A cache has either of transformers' names, and is refused where another model filled it."""

import pytest
import torch
from transformers import DynamicCache
from transformers.cache_utils import QuantizedCache

from loriini.model.generate.cache import CACHE
from tiny import random_ids, tiny_model


def test_a_cache_that_another_model_filled_is_refused() -> None:
    cache = DynamicCache()
    for layer in range(2):
        cache.update(torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 8), layer)
    with pytest.raises(ValueError, match="filled by another model"):
        tiny_model()(random_ids(1, 3), past_key_values=cache)


def test_a_quantized_cache_is_refused() -> None:
    cache = object.__new__(QuantizedCache)  # to make one needs an optional library
    cache.layers = []
    with pytest.raises(ValueError, match="is quantized"):
        tiny_model()(random_ids(1, 3), past_key_values=cache)


@torch.no_grad()
def test_a_cache_has_two_names() -> None:
    model, ids = tiny_model("lory").eval(), random_ids(1, 5)
    out = model(ids, cache=DynamicCache())
    assert torch.equal(out.logits, model(ids, past_key_values=DynamicCache()).logits)
    assert out.to_tuple()[1] is out[CACHE]
    assert out[CACHE].get_seq_length() == 5
    with pytest.raises(ValueError, match="pass one of them"):
        model(ids, cache=DynamicCache(), past_key_values=DynamicCache())
