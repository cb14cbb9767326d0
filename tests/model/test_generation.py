"""Generation gives what one pass over the whole sequence gives, in both modes and by every search."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache, GenerationConfig

from loriini import LoriiniForCausalLM
from loriini.model.generate.cache import CACHE
from model.inference import GENERATING_CASES, MERGING_CASES, PROMPTS, label_of, whole
from tiny import CLOSE, SEGMENT, label_arguments, over_blocks, random_ids, tiny_model


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


@pytest.mark.parametrize(("assistant", "mode"), [("lory", "prompt"), ("dense", "segment")])
def test_assisted_decoding_equals_greedy(assistant: str, mode: str) -> None:
    model, ids = tiny_model(), random_ids(1, 6)
    draft = tiny_model(assistant, num_experts=4 if assistant == "lory" else 1)
    draft.generation_config.update(num_assistant_tokens=3, pad_token_id=2)
    tokens, logits = generated(model, ids, inference_routing=mode)
    assisted = generated(model, ids, inference_routing=mode, assistant_model=draft)
    assert torch.equal(assisted[0], tokens)
    torch.testing.assert_close(assisted[1], logits, **CLOSE)


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


@pytest.mark.parametrize(("name", "mode"), MERGING_CASES)
def test_continuing_with_a_cache_keeps_its_first_prompt(name: str, mode: str) -> None:
    model, cache = tiny_model(name), DynamicCache()
    first = generated(model, random_ids(1, 2), inference_routing=mode, **{CACHE: cache})[0]
    turn = torch.cat([first, random_ids(1, 5)], dim=1)
    tokens, logits = generated(model, turn, inference_routing=mode, **{CACHE: cache})
    with torch.no_grad():
        by_hand = whole(model, tokens[0], 2, mode)[turn.shape[1] - 1 : -1]
    torch.testing.assert_close(logits[0], by_hand, **CLOSE)


@pytest.mark.parametrize(
    ("design", "experts"), [("dense", 1), ("dense", 4), ("smear", 1), ("lory", 1), ("label", 4)]
)
def test_where_gates_depend_on_no_tokens_both_modes_are_one(design: str, experts: int) -> None:
    model, ids = tiny_model(design, num_experts=experts), random_ids(2, 6)
    by_segment, by_prompt = (generated(model, ids, inference_routing=m)[1] for m in ("segment", "prompt"))
    assert torch.equal(by_segment, by_prompt)


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


EMPTY = torch.zeros(2, 0, dtype=torch.long)
OWN = GenerationConfig(bos_token_id=3, eos_token_id=1)


@pytest.mark.parametrize(
    ("special", "ids", "call", "start"),
    [
        ({"bos_token_id": 0, "eos_token_id": 1}, None, {}, 0),
        ({"bos_token_id": None, "eos_token_id": 1}, EMPTY, {}, 1),
        ({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 1}, EMPTY, {}, 1),
        ({"bos_token_id": 0, "eos_token_id": 1}, None, {"bos_token_id": 3}, 3),
        ({"bos_token_id": 0, "eos_token_id": 1}, EMPTY, {"generation_config": OWN}, 3),
        ({"eos_token_id": 1}, None, {"eos_token_id": [3, 1]}, 3),
        ({"eos_token_id": 1}, None, {"eos_token_id": torch.tensor(3)}, 3),
    ],
)
def test_an_empty_prompt_is_bos_or_eos_alone(
    special: dict[str, int], ids: Tensor | None, call: dict[str, Any], start: int
) -> None:
    """Those of the call before the model's, also where the token is the padding too."""
    model, arguments = tiny_model(**special), {"max_new_tokens": 6, "do_sample": False, **call}
    prompt = torch.full((1 if ids is None else 2, 1), start)
    expected = model.generate(prompt, attention_mask=torch.ones_like(prompt), **arguments)
    assert torch.equal(model.generate(ids, **arguments), expected)


@pytest.mark.parametrize(
    ("design", "ids", "arguments", "named"),
    [
        ("lory", None, {}, "bos_token_id"),
        ("lory", random_ids(), {"inference_routing": "token"}, "inference_routing is 'token'"),
        ("smear", random_ids(), {"inference_routing": "segment"}, "inference_routing='segment'"),
        ("label", random_ids(), {}, "routing_labels"),
    ],
)
def test_what_cannot_be_generated_is_refused(
    design: str, ids: Tensor | None, arguments: dict[str, str], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        tiny_model(design).generate(ids, max_new_tokens=2, **arguments)
