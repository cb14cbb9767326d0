"""A layer computes what Lory's paper says; a cache changes nothing, however it is cropped or reordered."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad, silu
from transformers import DynamicCache

from loriini import LoriiniForCausalLM, RoutingConfig
from loriini.model.mixture import Mixture
from loriini.routing.unit import RoutingContext, unit_layout
from model.inference import CASES, CLOSE, MERGING_CASES, PROMPTS, label_of, whole
from tiny import LENGTH, SEGMENT, label_arguments, over_blocks, random_ids, tiny_model


def lory_layer(name: str = "lory", experts: int = 4) -> Mixture:
    model = tiny_model(name, num_experts=experts).double()
    return model.model.layers[0].mlp


@pytest.mark.parametrize("name", ["lory", "prefix"])
def test_a_segments_routing_depends_on_the_segment_before_alone(name: str) -> None:
    layer, x_BLD, context = lory_layer(name), torch.randn(2, LENGTH, 16).double(), RoutingContext(2, LENGTH)
    layout = unit_layout(layer.design, context)
    gates = layer(x_BLD, context, layout)[1].gates.view(2, 3, 4)
    for segment in range(3):
        changed = x_BLD.clone()
        changed[0, segment * SEGMENT : (segment + 1) * SEGMENT] += 1
        now = layer(changed, context, layout)[1].gates.view(2, 3, 4)
        affected = {0: [0, 1, 2] if name == "prefix" else [0, 1], 1: [2], 2: []}[segment]
        if name == "prefix" and segment > 0:
            affected = []
        different = (now != gates).any(-1)
        assert different[0].nonzero().flatten().tolist() == affected
        assert not different[1].any()


def lory_twin(
    x_LD: Tensor, router: Tensor, gate: Tensor, up: Tensor, down: Tensor, prefix: bool = False
) -> Tensor:
    """Lory's layer for one instance as its paper defines it: segment by segment, expert by expert."""
    segments = x_LD.split(SEGMENT)
    outputs = []
    for k, x_SD in enumerate(segments):
        source = segments[0] if prefix or k == 0 else segments[k - 1]
        e = torch.exp(router @ source.mean(0))
        e = e / e.sum()
        if k == 0:
            e = e.detach()
        g, u, out = (sum(e[i] * w[i] for i in range(len(e))) for w in (gate, up, down))
        outputs.append(torch.stack([out @ (silu(g @ token) * (u @ token)) for token in x_SD]))
    return torch.cat(outputs)


@pytest.mark.parametrize("name", ["lory", "prefix"])
@pytest.mark.parametrize("length", [1, SEGMENT, LENGTH, 3 * SEGMENT])
def test_the_layer_equals_its_definition_with_gradients(name: str, length: int) -> None:
    layer = lory_layer(name, experts=5)
    x_BLD = torch.randn(2, length, 16).double().requires_grad_()
    weights = [layer.router.scorer.weight, *layer.experts.stacked().values()]
    context = RoutingContext(2, length)
    y = layer(x_BLD, context, unit_layout(layer.design, context))[0]
    expected = torch.stack([lory_twin(x_LD, *weights, prefix=name == "prefix") for x_LD in x_BLD])
    torch.testing.assert_close(y, expected, rtol=1e-6, atol=1e-6)
    probe = torch.randn_like(y)
    found = torch.autograd.grad((y * probe).sum(), [x_BLD, *weights])
    wanted = torch.autograd.grad((expected * probe).sum(), [x_BLD, *weights], materialize_grads=True)
    for actual, gradient in zip(found, wanted, strict=True):
        torch.testing.assert_close(actual, gradient, rtol=1e-5, atol=1e-6)
    assert bool(wanted[1].any()) == (length > SEGMENT)


def cached(model: LoriiniForCausalLM, ids: Tensor, chunks: list[int], mode: str, **arguments: Any) -> Tensor:
    """The logits (B, L, V), fed in chunks through a cache; the first one is the prompt."""
    cache, logits, mask = DynamicCache(), [], arguments.pop("attention_mask", torch.ones_like(ids))
    positions, start = (mask.cumsum(1) - 1).clamp(min=0), 0
    for size in chunks:
        end = start + size
        out = model(
            ids[:, start:end],
            attention_mask=mask[:, :end],
            position_ids=positions[:, start:end],
            past_key_values=cache,
            use_cache=True,
            inference_routing=mode,
            **label_arguments(model, len(ids)),
        )
        logits.append(out.logits)
        start = end
    assert start == ids.shape[1]
    return torch.cat(logits, dim=1)


CHUNKS = [3, 1, SEGMENT + 2, 3]
"""Tokens a call after each of PROMPTS."""


@pytest.mark.parametrize(("name", "mode", "block"), over_blocks(CASES))
@torch.no_grad()
def test_a_cache_changes_nothing(name: str, mode: str, block: str) -> None:
    model = tiny_model(name, block=block)
    steps = list(zip(PROMPTS, CHUNKS, strict=True))
    for prompt, chunk in steps if (name, mode) in MERGING_CASES else steps[-1:]:
        ids = random_ids(2, prompt + 12)
        found = cached(model, ids, [prompt] + [chunk] * (12 // chunk), mode)
        for b, row in enumerate(ids):
            expected = whole(model, row, prompt, mode, label_of(model, b, 2))
            torch.testing.assert_close(found[b], expected, **CLOSE)


@pytest.mark.parametrize(("name", "mode", "block"), over_blocks(CASES))
@torch.no_grad()
def test_a_padded_batch_equals_its_rows_alone(name: str, mode: str, block: str) -> None:
    model, lengths, new, width = tiny_model(name, block=block), [9, 2, 5], 7, 9
    prompts, continuation = [random_ids(1, n)[0] for n in lengths], random_ids(3, new)
    for side in ("left", "right"):
        rows = [
            pad(p, (width - len(p), 0) if side == "left" else (0, width - len(p)), value=2) for p in prompts
        ]
        ids = torch.cat([torch.stack(rows), continuation], dim=1)
        mask = (ids != 2).long()
        with_cache = cached(model, ids, [width] + [1] * new, mode, attention_mask=mask)
        without = model(
            ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            prompt_lengths=torch.tensor(lengths),
            inference_routing=mode,
            **label_arguments(model, 3),
        ).logits
        for b, prompt in enumerate(prompts):
            real = mask[b].bool()
            alone = whole(model, ids[b][real], len(prompt), mode, label_of(model, b, 3))
            for found in (with_cache, without):
                torch.testing.assert_close(found[b][real], alone, **CLOSE)


@torch.no_grad()
def test_equal_gates_for_segment_one_also_in_segment_mode() -> None:
    design = RoutingConfig(segment_length=SEGMENT, first_segment="uniform")
    model, ids = tiny_model(design), random_ids(2, 11)
    out = model(ids, prompt_lengths=torch.tensor([2, 9]), inference_routing="segment")
    torch.testing.assert_close(out.logits, model(ids).logits)
    torch.testing.assert_close(cached(model, ids, [2, 3, 1, 5], "segment"), out.logits, **CLOSE)


@pytest.mark.parametrize(("name", "mode", "block"), over_blocks(MERGING_CASES))
@pytest.mark.parametrize("wrong", [1, SEGMENT + 1])
@torch.no_grad()
def test_cropped_tokens_were_never_there(name: str, mode: str, block: str, wrong: int) -> None:
    model, ids, prompt = tiny_model(name, block=block), random_ids(2, 3 * SEGMENT), SEGMENT + 1
    cache = DynamicCache()
    step = {"past_key_values": cache, "use_cache": True, "inference_routing": mode}
    model(ids[:, :prompt], **step)
    model(ids[:, prompt : prompt + 2], **step)
    model(random_ids(2, wrong), **step)
    cache.crop(-wrong)
    assert cache.get_seq_length() == prompt + 2
    found = model(ids[:, prompt + 2 :], **step).logits
    for b, row in enumerate(ids):
        torch.testing.assert_close(found[b], whole(model, row, prompt, mode)[prompt + 2 :], **CLOSE)


@pytest.mark.parametrize("emptied", ["crop", "reset"])
@torch.no_grad()
def test_an_emptied_cache_takes_a_new_prompt(emptied: str) -> None:
    model, cache, ids = tiny_model(), DynamicCache(), random_ids(1, 5)
    model(random_ids(1, 7), past_key_values=cache, use_cache=True)
    cache.crop(-7) if emptied == "crop" else cache.reset()
    logits = model(ids, past_key_values=cache, use_cache=True).logits[0]
    torch.testing.assert_close(logits, whole(model, ids[0], 5, "prompt"), **CLOSE)


@pytest.mark.parametrize(("name", "mode", "block"), over_blocks(MERGING_CASES))
@pytest.mark.parametrize("change", ["repeat", "select", "reorder"])
@torch.no_grad()
def test_routing_follows_what_happens_to_the_cache(name: str, mode: str, block: str, change: str) -> None:
    model, ids, more = tiny_model(name, block=block), random_ids(2, SEGMENT + 1), random_ids(4, SEGMENT)
    cache = DynamicCache()
    step = {"past_key_values": cache, "use_cache": True, "inference_routing": mode}
    model(ids, **step)
    if change == "repeat":
        cache.batch_repeat_interleave(2)
        rows = [0, 0, 1, 1]
    elif change == "select":
        cache.batch_select_indices(torch.tensor([1]))
        rows = [1]
    else:
        cache.reorder_cache(torch.tensor([1, 0]))
        rows = [1, 0]
    found = model(more[: len(rows)], **step).logits
    for b, source in enumerate(rows):
        expected = whole(model, torch.cat([ids[source], more[b]]), SEGMENT + 1, mode)[SEGMENT + 1 :]
        torch.testing.assert_close(found[b], expected, **CLOSE)


@pytest.mark.parametrize("batch", [1, 3])
@torch.no_grad()
def test_a_prompts_ffn_is_merged_once_where_that_takes_less_memory(batch: int) -> None:
    model, cache = tiny_model(num_experts=2), DynamicCache()
    ids = random_ids(batch, 6)
    model(ids, past_key_values=cache, use_cache=True)
    assert all(("down_proj" in layer.kept) == (batch <= 2) for layer in cache.layers)
    merges = 0
    for layer in model.model.layers:
        original = layer.mlp.experts.merge

        def counted(gates: Tensor, original: Any = original) -> Any:
            nonlocal merges
            merges += 1
            return original(gates)

        layer.mlp.experts.merge = counted
    model(ids[:, :1], past_key_values=cache, use_cache=True)
    assert merges == (0 if batch <= 2 else 2)


def test_a_cache_that_another_model_filled_is_refused() -> None:
    cache = DynamicCache()
    for layer in range(2):
        cache.update(torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 8), layer)
    with pytest.raises(ValueError, match="filled by another model"):
        tiny_model()(random_ids(1, 3), past_key_values=cache)
