"""A layer computes what Lory's paper says; a cache changes nothing, however it is cropped or reordered."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad, silu
from transformers import DynamicCache

from loriini import LoriiniForCausalLM, RoutingConfig
from loriini.model.mixture import Mixture
from loriini.routing import Router
from loriini.routing.unit import RoutingContext, unit_layout
from model.inference import CASES, MERGING_CASES, PROMPTS, label_of, whole
from tiny import CLOSE, LENGTH, SEGMENT, label_arguments, over_blocks, random_ids, tiny_model


def lory_layer(name: str = "lory", experts: int = 4) -> Mixture:
    model = tiny_model(name, num_experts=experts).double()
    return model.model.layers[0].mlp


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
    y = layer(x_BLD, context, unit_layout(layer.config.routing, context))[0]
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
    parts = (ids[:, prompt + 2 : prompt + 3], ids[:, prompt + 3 :])  # the first ends its segment
    found = torch.cat([model(part, **step).logits for part in parts], dim=1)
    for b, row in enumerate(ids):
        torch.testing.assert_close(found[b], whole(model, row, prompt, mode)[prompt + 2 :], **CLOSE)


@pytest.mark.parametrize("name", ["lory", "smear", "sequence-top2"])
@torch.no_grad()
def test_cropped_tokens_of_a_prompt_are_passed_again(name: str) -> None:
    """The decision stays that of the whole prompt."""
    model, ids, prompt = tiny_model(name), random_ids(2, 9), 6
    cache = DynamicCache()
    model(ids[:, :prompt], past_key_values=cache)
    cache.crop(-2)
    found = model(ids[:, prompt - 2 :], past_key_values=cache).logits
    for b, row in enumerate(ids):
        torch.testing.assert_close(found[b], whole(model, row, prompt, "prompt")[prompt - 2 :], **CLOSE)


@pytest.mark.parametrize("prompt", [SEGMENT - 1, 3 * SEGMENT])
@torch.no_grad()
def test_in_segment_mode_others_may_replace_them(prompt: int) -> None:
    """In one layer: in others, the token that stays was computed with what the removed ones decided."""
    model, cache, ids = tiny_model(num_hidden_layers=1), DynamicCache(), random_ids(2, 4 * SEGMENT)
    step = {"past_key_values": cache, "use_cache": True, "inference_routing": "segment"}
    model(torch.cat([ids[:, :1], random_ids(2, prompt - 1)], dim=1), **step)
    cache.crop(-prompt + 1)
    parts = (ids[:, 1:prompt], ids[:, prompt:])
    found = torch.cat([model(part, **step).logits for part in parts], dim=1)
    for b, row in enumerate(ids):
        torch.testing.assert_close(found[b], whole(model, row, prompt, "segment")[1:], **CLOSE)


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
@pytest.mark.parametrize(
    ("prompt", "last"), [(SEGMENT + 1, SEGMENT + 1), (4 * SEGMENT, 4 * SEGMENT), (SEGMENT + 1, 1)]
)
@torch.no_grad()
def test_routing_follows_what_happens_to_the_cache(
    name: str, mode: str, block: str, change: str, prompt: int, last: int
) -> None:
    """The prompt is short or long, or its last token follows alone."""
    model, ids, more = tiny_model(name, block=block), random_ids(2, prompt), random_ids(4, SEGMENT)
    cache = DynamicCache()
    step = {"past_key_values": cache, "use_cache": True, "inference_routing": mode}
    lengths = {"prompt_lengths": torch.full((2,), prompt - last or prompt)}
    for part in ids.split([prompt - last, last], dim=1)[prompt == last :]:
        model(part, **step, **lengths)
    whole_prompt = int(lengths["prompt_lengths"][0])
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
        expected = whole(model, torch.cat([ids[source], more[b]]), whole_prompt, mode)[prompt:]
        torch.testing.assert_close(found[b], expected, **CLOSE)


@pytest.mark.parametrize(("name", "mode"), [("lory", "prompt"), ("lory", "segment"), ("smear", "prompt")])
@torch.no_grad()
def test_tokens_within_a_unit_are_not_routed_again(name: str, mode: str, monkeypatch: Any) -> None:
    model, cache, ids = tiny_model(name), DynamicCache(), random_ids(2, 2 * SEGMENT)
    step = {"past_key_values": cache, "use_cache": True, "inference_routing": mode}
    prompt = model(ids[:, : SEGMENT + 1], **step)
    monkeypatch.setattr(Router, "forward", None)
    after = model(ids[:, SEGMENT + 1 :], **step)
    for first, later in zip(prompt.routings, after.routings, strict=True):
        assert later.unit_shape == (2, 1)
        for decided, kept in ((first.gates, later.gates), (first.logits, later.logits)):
            assert torch.equal(kept, decided.unflatten(0, first.unit_shape)[:, -1])


@torch.no_grad()
def test_a_sequence_without_tokens_in_a_call_keeps_its_decision() -> None:
    model, cache, ids = tiny_model(), DynamicCache(), random_ids(2, 4 * SEGMENT)
    step = {"past_key_values": cache, "use_cache": True, "inference_routing": "segment"}
    mask, first = torch.ones_like(ids), 2 * SEGMENT + 1  # in segment 3: segments 1 and 2 have one decision
    mask[1, first : first + SEGMENT] = 0  # meanwhile the first sequence begins a segment
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    found = []
    for start, end in ((0, first), (first, first + SEGMENT), (first + SEGMENT, 4 * SEGMENT)):
        part = {"attention_mask": mask[:, :end], "position_ids": positions[:, start:end]}
        found.append(model(ids[:, start:end], **part, **step).logits)
    real = mask[1].bool()
    alone = whole(model, ids[1][real], first, "segment")
    torch.testing.assert_close(torch.cat(found, 1)[1][real], alone, **CLOSE)
