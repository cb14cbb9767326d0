"""Generation gives what one pass over the whole sequence gives, in both modes and by every search."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache, GenerationConfig

from loriini import LoriiniForCausalLM
from loriini.model.generate.cache import CACHE, RoutedCacheLayer
from model.inference import CLOSE, GENERATING_CASES, MERGING_CASES, PROMPTS, label_of, whole
from tiny import SEGMENT, label_arguments, over_blocks, random_ids, tiny_model


def generated(model: LoriiniForCausalLM, ids: Tensor, **arguments: Any) -> tuple[Tensor, Tensor]:
    """Greedy tokens (B, L + 10) and the logits (B, 10, V) of every step."""
    out = model.generate(
        ids,
        max_new_tokens=10,
        do_sample=False,
        pad_token_id=2,
        return_dict_in_generate=True,
        output_logits=True,
        **label_arguments(model, len(ids)),
        **arguments,
    )
    return out.sequences, torch.stack(out.logits, dim=1)


@pytest.mark.parametrize(("name", "mode", "block"), over_blocks(GENERATING_CASES))
@torch.no_grad()
def test_generate_with_a_cache_without_one_and_by_hand(name: str, mode: str, block: str) -> None:
    model = tiny_model(name, block=block)
    for prompt in PROMPTS if name == "lory" else PROMPTS[-1:]:
        ids = random_ids(2, prompt)
        tokens, logits = generated(model, ids, inference_routing=mode)
        tokens_without, logits_without = generated(model, ids, inference_routing=mode, use_cache=False)
        assert torch.equal(tokens, tokens_without)
        torch.testing.assert_close(logits, logits_without, **CLOSE)
        for b, row in enumerate(tokens):
            by_hand = whole(model, row, prompt, mode, label_of(model, b, 2))[prompt - 1 : -1]
            torch.testing.assert_close(logits[b], by_hand, **CLOSE)


@pytest.mark.parametrize(("name", "mode", "block"), over_blocks(GENERATING_CASES))
@torch.no_grad()
def test_generate_from_a_padded_batch(name: str, mode: str, block: str) -> None:
    model, prompts = tiny_model(name, block=block), [random_ids(1, n)[0] for n in (9, 2, 5)]
    ids = torch.stack([pad(p, (9 - len(p), 0), value=2) for p in prompts])
    for use_cache in (True, False):
        arguments = {"inference_routing": mode, "use_cache": use_cache}
        tokens, logits = generated(model, ids, attention_mask=(ids != 2).float(), **arguments)
        for b, prompt in enumerate(prompts):
            row = tokens[b, 9 - len(prompt) :]
            alone = whole(model, row, len(prompt), mode, label_of(model, b, 3))[len(prompt) - 1 : -1]
            torch.testing.assert_close(logits[b], alone, **CLOSE)


@pytest.mark.parametrize(("name", "mode"), [*MERGING_CASES, ("smear", "prompt")])
@torch.no_grad()
def test_generate_for_more_sequences_than_experts(name: str, mode: str) -> None:
    model, ids = tiny_model(name, num_experts=3), random_ids(7, 2 * SEGMENT + 1)
    tokens, logits = generated(model, ids, inference_routing=mode)
    tokens_without, logits_without = generated(model, ids, inference_routing=mode, use_cache=False)
    assert torch.equal(tokens, tokens_without)
    torch.testing.assert_close(logits, logits_without, **CLOSE)


def test_generation_is_prompt_routed_by_default() -> None:
    model, ids = tiny_model(), random_ids(1, 2 * SEGMENT + 1)
    by_default = generated(model, ids)[1]
    assert torch.equal(by_default, generated(model, ids, inference_routing="prompt")[1])
    assert not torch.allclose(by_default, generated(model, ids, inference_routing="segment")[1], atol=1e-2)


@torch.no_grad()
def test_without_prompt_lengths_a_call_routes_as_in_training() -> None:
    model, ids = tiny_model(), random_ids(2, 11)
    expected = model.train()(ids).logits
    assert torch.equal(model.eval()(ids).logits, expected)
    filling_a_cache = model(ids, use_cache=True)
    as_prompt = model(ids, prompt_lengths=torch.tensor([11, 11]))
    torch.testing.assert_close(filling_a_cache.logits, as_prompt.logits)
    assert filling_a_cache.routings[0].unit_shape == as_prompt.routings[0].unit_shape == (2, 1)


@torch.no_grad()
def test_segment_mode_routes_like_training_once_the_prompt_fills_segment_one() -> None:
    model, ids = tiny_model(), random_ids(2, 11)
    segmented = model(ids, prompt_lengths=torch.tensor([SEGMENT, 9]), inference_routing="segment")
    torch.testing.assert_close(segmented.logits, model(ids).logits)


TOGETHER = [("lory", "prompt"), ("lory", "segment"), ("ec-segment", "segment"), ("prefix", "segment")]
ALONE = [(name, "prompt") for name in ("mixtral", "segment-then-token", "aoe", "label", "dense")]


@pytest.mark.parametrize(("name", "mode"), [*TOGETHER, ("smear", "prompt"), *ALONE])
def test_a_prompt_in_chunks_is_as_one_or_is_refused(name: str, mode: str) -> None:
    model, ids = tiny_model(name), random_ids(2, 2 * SEGMENT + 3)
    expected = generated(model, ids, inference_routing=mode)[1]
    for chunk in (SEGMENT - 1, SEGMENT + 1):
        arguments = {"inference_routing": mode, "prefill_chunk_size": chunk}
        if (name, mode) not in ALONE and (mode == "prompt" or chunk < SEGMENT):
            remedy = "pass the whole prompt" + ("" if name == "smear" else ", or with inference_routing='seg")
            with pytest.raises(
                ValueError, match=f"routed together; {remedy}{'$' if name == 'smear' else ''}"
            ):
                generated(model, ids, **arguments)
            continue
        torch.testing.assert_close(generated(model, ids, **arguments)[1], expected, **CLOSE)


@pytest.mark.parametrize("cache", ["static", "sliding_window"])
@pytest.mark.parametrize(("name", "mode"), [("lory", "prompt"), ("lory", "segment"), ("mixtral", "prompt")])
def test_static_caches_take_a_padded_batch(name: str, mode: str, cache: str) -> None:
    model, ids = tiny_model(name), random_ids(2, 6)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    arguments = {"attention_mask": mask, "inference_routing": mode}
    tokens, logits = generated(model, ids, **arguments, cache_implementation=cache)
    expected_tokens, expected = generated(model, ids, **arguments)
    assert torch.equal(tokens, expected_tokens)
    torch.testing.assert_close(logits, expected, **CLOSE)


BEAMS = [*MERGING_CASES, ("label", "prompt"), ("segment-then-token", "prompt")]


@pytest.mark.parametrize(("name", "mode", "block"), over_blocks(BEAMS))
def test_beam_search(name: str, mode: str, block: str) -> None:
    model, ids = tiny_model(name, block=block), random_ids(2, 5)
    results = [
        model.generate(
            ids,
            num_beams=3,
            num_return_sequences=2,
            max_new_tokens=9,
            do_sample=False,
            pad_token_id=2,
            inference_routing=mode,
            use_cache=use_cache,
            return_dict_in_generate=True,
            output_scores=True,
            **label_arguments(model, 2),
        )
        for use_cache in (True, False)
    ]
    assert torch.equal(results[0].sequences, results[1].sequences)
    torch.testing.assert_close(results[0].sequences_scores, results[1].sequences_scores, **CLOSE)


@pytest.mark.parametrize(("name", "mode"), [*MERGING_CASES, ("segment-then-token", "prompt")])
def test_prompt_lookup_decoding_equals_greedy(name: str, mode: str) -> None:
    model, phrase = tiny_model(name), random_ids(1, 5)
    ids = torch.cat([phrase, phrase, phrase], dim=1)
    tokens, logits = generated(model, ids, inference_routing=mode)
    looked_up = generated(model, ids, inference_routing=mode, prompt_lookup_num_tokens=4)
    assert torch.equal(looked_up[0], tokens)
    torch.testing.assert_close(looked_up[1], logits, **CLOSE)


@pytest.mark.parametrize("mode", ["prompt", "segment"])
@pytest.mark.parametrize("assistant", ["lory", "dense"])
def test_assisted_decoding_equals_greedy(assistant: str, mode: str) -> None:
    model, ids = tiny_model(), random_ids(1, 6)
    draft = tiny_model(assistant, num_experts=4 if assistant == "lory" else 1)
    draft.generation_config.update(num_assistant_tokens=3, pad_token_id=2)
    tokens, logits = generated(model, ids, inference_routing=mode)
    assisted = generated(model, ids, inference_routing=mode, assistant_model=draft)
    assert torch.equal(assisted[0], tokens)
    torch.testing.assert_close(assisted[1], logits, **CLOSE)


def test_drafts_of_the_first_layers_are_routed_as_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny_model("lory", num_hidden_layers=3), random_ids(1, 6)
    forward, modes = model.forward, []

    def watched(*args: Any, inference_routing: str | None = None, **kwargs: Any) -> Any:
        modes.append(inference_routing)
        return forward(*args, inference_routing=inference_routing, **kwargs)

    monkeypatch.setattr(model, "forward", watched)
    generated(model, ids, assistant_early_exit=1, inference_routing="segment")
    assert set(modes) == {"segment"}


@pytest.mark.parametrize("name", ["mixtral", "label"])
def test_drafts_of_the_first_layers_leave_the_model_as_it_is(name: str) -> None:
    model, ids = tiny_model(name, num_hidden_layers=3), random_ids(1, 6)
    tokens, _ = generated(model, ids)
    for _ in range(2):
        assert torch.equal(generated(model, ids, assistant_early_exit=1)[0], tokens)


@pytest.mark.parametrize(("name", "mode", "block"), over_blocks(MERGING_CASES))
def test_generate_from_embeddings(name: str, mode: str, block: str) -> None:
    model, ids = tiny_model(name, block=block), random_ids(2, SEGMENT + 2)
    tokens, logits = generated(model, ids, inference_routing=mode)
    embeddings = model.get_input_embeddings()(ids)
    out = generated(model, ids, inputs_embeds=embeddings, inference_routing=mode)
    assert torch.equal(out[0], tokens)
    torch.testing.assert_close(out[1], logits, **CLOSE)


@pytest.mark.parametrize("bos", [0, None])
@pytest.mark.parametrize("ids", [None, torch.zeros(2, 0, dtype=torch.long)], ids=["none", "two empty"])
def test_an_empty_prompt_is_bos_or_eos_alone(bos: int | None, ids: Tensor | None) -> None:
    model = tiny_model(bos_token_id=bos, eos_token_id=1)
    arguments = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 2}
    start = torch.full((1 if ids is None else 2, 1), 1 if bos is None else 0)
    assert torch.equal(model.generate(ids, **arguments), model.generate(start, **arguments))


def test_an_empty_prompt_is_the_calls_own_bos() -> None:
    model, arguments = tiny_model(bos_token_id=0, eos_token_id=1), {"max_new_tokens": 6, "do_sample": False}
    expected = model.generate(torch.tensor([[3]]), **arguments)
    own = GenerationConfig(bos_token_id=3, eos_token_id=1)
    assert torch.equal(model.generate(bos_token_id=3, **arguments), expected)
    assert torch.equal(model.generate(generation_config=own, **arguments), expected)
    assert torch.equal(model.generate(None, own, **arguments), expected)


@pytest.mark.parametrize("eos", [[], [1, 3], torch.tensor([1, 3]), torch.tensor(1)], ids=str)
def test_an_empty_prompt_is_the_first_of_several_eos(eos: list[int] | Tensor) -> None:
    model = tiny_model(eos_token_id=1)
    arguments = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 2, "eos_token_id": eos}
    assert model.generate(**arguments)[0, 0] == 1


def test_an_empty_prompt_needs_a_token_to_start_from() -> None:
    with pytest.raises(ValueError, match="needs a bos_token_id or an eos_token_id"):
        tiny_model().generate(max_new_tokens=2)


def test_a_cache_may_be_passed() -> None:
    model, ids, cache = tiny_model(), random_ids(1, 6), DynamicCache()
    arguments = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 2}
    tokens = model.generate(ids, **{CACHE: cache}, **arguments)
    assert torch.equal(tokens, model.generate(ids, **arguments))
    assert all(isinstance(layer, RoutedCacheLayer) for layer in cache.layers)
    assert cache.get_seq_length() == 10


@pytest.mark.parametrize(("name", "mode"), MERGING_CASES)
def test_continuing_with_a_cache_keeps_its_first_prompt(name: str, mode: str) -> None:
    model, cache = tiny_model(name), DynamicCache()
    first = generated(model, random_ids(1, 2), inference_routing=mode, **{CACHE: cache})[0]
    turn = torch.cat([first, random_ids(1, 5)], dim=1)
    tokens, logits = generated(model, turn, inference_routing=mode, **{CACHE: cache})
    with torch.no_grad():
        by_hand = whole(model, tokens[0], 2, mode)[turn.shape[1] - 1 : -1]
    torch.testing.assert_close(logits[0], by_hand, **CLOSE)


@pytest.mark.parametrize(("call", "more"), [("forward", {}), ("generate", {"max_new_tokens": 2})])
def test_an_unknown_inference_routing_is_refused(call: str, more: dict[str, int]) -> None:
    model = tiny_model()
    with pytest.raises(ValueError, match="inference_routing is 'token'; it must be 'prompt' or 'segment'"):
        getattr(model, call)(random_ids(), inference_routing="token", **more)


def test_segment_mode_needs_segments() -> None:
    with pytest.raises(ValueError, match="inference_routing='segment': this model routes whole sequences"):
        tiny_model("smear").generate(random_ids(), inference_routing="segment", max_new_tokens=2)


@pytest.mark.parametrize(
    ("design", "experts"), [("dense", 1), ("dense", 4), ("smear", 1), ("lory", 1), ("label", 4)]
)
def test_where_gates_depend_on_no_tokens_both_modes_are_one(design: str, experts: int) -> None:
    model, ids = tiny_model(design, num_experts=experts), random_ids(2, 6)
    by_segment, by_prompt = (generated(model, ids, inference_routing=m)[1] for m in ("segment", "prompt"))
    assert torch.equal(by_segment, by_prompt)


def test_generation_by_a_label_design_needs_labels() -> None:
    with pytest.raises(ValueError, match="needs routing_labels"):
        tiny_model("label").generate(random_ids(), max_new_tokens=2)


@torch.no_grad()
def test_an_empty_prompt_is_read_where_its_token_is_the_padding_too() -> None:
    model = tiny_model("lory", bos_token_id=1, eos_token_id=2, pad_token_id=1).eval()
    empty = model.generate(torch.zeros(1, 0, dtype=torch.long), max_new_tokens=3, do_sample=False)
    ids = torch.tensor([[1]])
    assert torch.equal(
        empty, model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=3, do_sample=False)
    )


def test_sequences_of_a_random_router_may_have_draws_of_their_own() -> None:
    model, ids = tiny_model("random").eval(), random_ids(1).expand(2, -1)
    draws = torch.tensor([1, 2])
    how = {"max_new_tokens": 1, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    made = model.generate(ids, router_seeds=draws, **how)
    expected = model(ids, router_seeds=draws).logits[:, -1]
    torch.testing.assert_close(made.logits[0], expected)
    assert not torch.allclose(expected[0], expected[1])


@pytest.mark.parametrize(("first", "later"), [("prompt", "segment"), ("segment", "prompt")])
def test_a_cache_keeps_the_mode_that_it_was_filled_in(first: str, later: str) -> None:
    model, ids, cache = tiny_model(), random_ids(1, 3 * SEGMENT), DynamicCache()
    whole_call = {"prompt_lengths": torch.tensor([SEGMENT]), "inference_routing": first}
    filled, rest = ids[:, : SEGMENT + 1], ids[:, SEGMENT + 1 :]
    with torch.no_grad():
        expected = model(ids, **whole_call).logits[:, SEGMENT + 1 :]
        model(filled, **whole_call, **{CACHE: cache})
        with pytest.raises(ValueError, match=f"inference_routing='{later}', but this cache was .*'{first}'"):
            model(rest, inference_routing=later, **{CACHE: cache})
        torch.testing.assert_close(model(rest, **{CACHE: cache}).logits, expected, **CLOSE)
        cache.reset()
        model(filled, inference_routing=later, **{CACHE: cache})
