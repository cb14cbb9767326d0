"""Merged FFNs in generation: when they are merged, and when they are kept."""

from typing import Any

import pytest
import torch
from transformers import DynamicCache

from loriini import LoriiniForCausalLM
from loriini.model.experts.stacked import Experts
from tiny import SEGMENT, random_ids, tiny_model

WAYS = {1: ["merge", "merged"], 2: ["merge", "merged"], 3: ["by_sums"]}
"""What experts are asked for in each layer of a call that decides, by batch size, with 2 experts."""


def calls_of(model: LoriiniForCausalLM, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What experts are asked for, once for each layer and call from now on."""
    called: list[str] = []
    original = Experts.forward

    def recorded(self: Experts, x: Any, way: Any = Experts.single, *arguments: Any) -> Any:
        called.append(way.__name__)
        return original(self, x, way, *arguments)

    monkeypatch.setattr(Experts, "forward", recorded)
    return called


@pytest.mark.parametrize("mode", ["prompt", "segment"])
@pytest.mark.parametrize("batch", list(WAYS))
@torch.no_grad()
def test_experts_are_merged_once_a_decision_where_that_takes_less_memory(
    batch: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cache, ids = tiny_model(num_experts=2), DynamicCache(), random_ids(batch, 2 * SEGMENT + 2)
    step = {"past_key_values": cache, "use_cache": True, "inference_routing": mode}
    model(ids[:, :SEGMENT], **step)
    called = calls_of(model, monkeypatch)
    for i in range(SEGMENT, 2 * SEGMENT + 2):
        del called[:]
        model(ids[:, i : i + 1], **step)
        begins = mode == "segment" and i % SEGMENT == 0
        assert called == 2 * (WAYS[batch] if begins else WAYS[batch][-1:])


@pytest.mark.parametrize(("batch", "kept"), [(2, 3), (3, 0)])
@torch.no_grad()
def test_no_more_ffns_are_kept_than_there_are_experts(batch: int, kept: int) -> None:
    model, cache = tiny_model(num_experts=2), DynamicCache()
    model(random_ids(batch, 64), past_key_values=cache, use_cache=True, inference_routing="prompt")
    assert len(cache.layers[1].merged) == kept


@pytest.mark.parametrize("batch", [1, 2])
@torch.no_grad()
def test_states_may_have_another_dtype_than_the_experts(batch: int) -> None:
    model = tiny_model().bfloat16()
    for layer in model.model.layers:
        layer.post_attention_layernorm.float()
        layer.post_attention_layernorm.register_forward_hook(lambda *arguments: arguments[2].float())
    lengths, ids = torch.full((batch,), 4), random_ids(batch, 4)
    assert model(ids, prompt_lengths=lengths).logits.isfinite().all()
    assert model(ids, prompt_lengths=lengths, use_cache=True).logits.isfinite().all()


@torch.no_grad()
def test_a_dense_model_merges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, cache = tiny_model("dense", num_experts=1), DynamicCache()
    called = calls_of(model, monkeypatch)
    for ids in (random_ids(2, 5), random_ids(2, 1)):
        model(ids, past_key_values=cache, use_cache=True)
    assert called == ["single"] * 4


@pytest.mark.parametrize("mode", ["prompt", "segment"])
@torch.no_grad()
def test_beams_of_one_prompt_do_not_copy_their_ffns(mode: str) -> None:
    model, cache = tiny_model(), DynamicCache()
    ids = random_ids(1, SEGMENT + 1).repeat(3, 1)
    model(ids, past_key_values=cache, use_cache=True, inference_routing=mode)
    model(ids[:, :1], past_key_values=cache, use_cache=True, inference_routing=mode)
    before = cache.layers[1].merged["down_proj"].data_ptr()
    cache.reorder_cache(torch.tensor([2, 0, 1]))
    assert cache.layers[1].merged["down_proj"].data_ptr() == before
