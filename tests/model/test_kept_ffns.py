"""Merged FFNs in generation: when they are kept, summed or laid out in blocks."""

from typing import Any

import pytest
import torch
from transformers import DynamicCache

from loriini import LoriiniForCausalLM
from loriini.model.experts.stacked import Experts
from loriini.model.mixture import cheapest_merge
from model.inference import CLOSE, lay_out_after, whole
from tiny import SEGMENT, random_ids, tiny_model

WAYS = {1: ["merge", "merged"], 2: ["merge", "merged"], 3: ["by_sums"]}
"""The experts' methods in each layer of a call that decides, by batch size, with 2 experts."""


def calls_of(model: LoriiniForCausalLM, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the experts' methods, one for each layer and call from now on."""
    called: list[str] = []
    original = Experts.forward

    def recorded(self: Experts, method: str, *arguments: Any) -> Any:
        called.append(method)
        return original(self, method, *arguments)

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


@pytest.mark.parametrize("mode", ["prompt", "segment"])
@pytest.mark.parametrize("batch", [1, 4])
@torch.no_grad()
def test_ffns_that_many_tokens_read_are_laid_out_in_blocks(
    batch: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out_after(2, monkeypatch)
    model, cache, ids = tiny_model(num_experts=2), DynamicCache(), random_ids(batch, 2 * SEGMENT)
    step = {"past_key_values": cache, "use_cache": True, "inference_routing": mode}
    found, laid_out = [model(ids[:, :SEGMENT], **step).logits], []
    for i in range(SEGMENT, 2 * SEGMENT):
        found.append(model(ids[:, i : i + 1], **step).logits)
        laid_out.append([w.dim() == 4 for w in cache.layers[1].merged.values()])
    before = [False] * 3 if batch == 1 else []  # four FFNs of two experts are kept in blocks alone
    assert laid_out == [before, before, *[[True] * 3] * (SEGMENT - 2)]
    for b, row in enumerate(ids):
        torch.testing.assert_close(torch.cat(found, 1)[b], whole(model, row, SEGMENT, mode), **CLOSE)


@pytest.mark.parametrize(("batch", "kept"), [(2, 3), (3, 0)])
@torch.no_grad()
def test_a_prompt_keeps_ffns_that_single_tokens_will_read(batch: int, kept: int) -> None:
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
    lengths = torch.full((batch,), 4)
    assert model(random_ids(batch, 4), prompt_lengths=lengths).logits.isfinite().all()


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


@pytest.mark.parametrize(
    ("units", "slots", "experts", "may_keep", "by_bags", "way"),
    [
        (1, 1, 8, True, False, "kept"),
        (8, 1, 8, True, False, "kept"),
        (16, 1, 8, True, False, "by_sums"),
        (16, 1, 8, True, True, "kept"),
        (17, 1, 8, True, True, "by_sums"),
        (64, 1, 32, True, False, "kept"),
        (64, 1, 32, True, True, "kept"),
        (65, 1, 32, True, True, "by_sums"),
        (16, 4, 8, False, False, "by_sums"),
        (64, 256, 8, False, False, "by_parameters"),
        (16, 128, 32, True, False, "kept"),
    ],
)
def test_the_cheapest_merge(
    units: int, slots: int, experts: int, may_keep: bool, by_bags: bool, way: str
) -> None:
    assert cheapest_merge(units, slots, experts, may_keep, by_bags) == way
