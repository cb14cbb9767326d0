"""Arguments of a forward call: those that routing depends on, and those that ask for other outputs."""

from typing import Any

import pytest
import torch

from loriini import LoriiniModel
from tiny import CLOSE, LENGTH, random_ids, tiny_model


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("routing_labels", torch.tensor([1])),
        ("routing_labels", torch.tensor([1.0, 1.0])),
        ("routing_labels", None),
        ("prompt_lengths", torch.tensor([4])),
        ("prompt_lengths", [4, 4]),
        ("prompt_lengths", torch.tensor([4, 0])),
        ("attention_mask", torch.ones(2, 3)),
        ("attention_mask", torch.ones(2, 12)),
        ("position_ids", torch.arange(6)),
        ("router_seeds", torch.tensor([1, 2, 3])),
        ("shift_labels", random_ids(1)[:, :1]),
        ("labels", random_ids(2).T),
    ],
)
def test_arguments_of_another_shape_are_refused(name: str, value: Any) -> None:
    """They would be broadcast, or leave a sequence without an expert, silently."""
    with pytest.raises(ValueError, match=name.removeprefix("shift_")):
        tiny_model("label")(random_ids(2), **{"routing_labels": torch.tensor([0, 1]), name: value})


@pytest.mark.parametrize(
    "mask", [torch.ones(2, 1, 11, 11, dtype=torch.bool), {"full": None}], ids=["4-D", "dict"]
)
@pytest.mark.parametrize("design", ["lory", "smear", "segment-then-token"])
def test_a_mask_of_pairs_of_tokens_is_refused_where_routing_pools(design: str, mask: Any) -> None:
    with pytest.raises(ValueError, match="attention_mask"):
        tiny_model(design)(random_ids(2), attention_mask=mask)


@pytest.mark.parametrize("design", ["dense", "mixtral"])
def test_it_is_taken_where_tokens_are_routed_by_themselves(design: str) -> None:
    model, ids = tiny_model(design), random_ids(2)
    causal = torch.ones(11, 11, dtype=torch.bool).tril().expand(2, 1, 11, 11)
    torch.testing.assert_close(model(ids, attention_mask=causal).logits, model(ids).logits)


def test_a_prompt_longer_than_the_call_is_refused() -> None:
    model, ids = tiny_model("lory"), random_ids(2)
    with pytest.raises(ValueError, match="routed together"):
        model(ids, prompt_lengths=torch.tensor([11, 12]))
    model(ids, prompt_lengths=torch.tensor([30, 30]), inference_routing="segment")  # segment 1 is there


@pytest.mark.parametrize("mode", ["prompt", "segment"])
def test_without_a_cache_and_lengths_a_mode_changes_nothing(mode: str) -> None:
    """All tokens would else be the prompt, and route those before them."""
    model, ids = tiny_model("lory").eval(), random_ids(2)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    assert torch.equal(model(ids, mask, inference_routing=mode).logits, model(ids, mask).logits)


@pytest.mark.parametrize(
    ("given", "meant"), [("routing_label", "routing_labels"), ("promt_lengths", "prompt_lengths")]
)
def test_a_misspelt_keyword_is_refused(given: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword {given}; do you mean {meant}"):
        tiny_model()(random_ids(), **{given: torch.ones(2, dtype=torch.long)})


@torch.no_grad()
def test_other_keywords_are_for_attention_kernels() -> None:
    model, ids = tiny_model(), random_ids()
    names = ("cu_seq_lens_q", "max_length_k", "seq_idx", "cache_position", "token_type_ids", "block_table")
    assert torch.equal(model(ids, **dict.fromkeys(names)).logits, model(ids).logits)


def test_a_mode_of_inference_needs_one_document_a_row() -> None:
    model, ids = tiny_model("lory"), random_ids(1)
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4]])
    model(ids, position_ids=positions)
    with pytest.raises(ValueError, match="inference_routing"):
        model(ids, position_ids=positions, inference_routing="prompt")


@pytest.mark.parametrize("design", ["lory", "smear"])
def test_a_sequence_without_tokens_is_no_prompt(design: str) -> None:
    mask = torch.ones(2, 11, dtype=torch.long)
    mask[1] = 0
    with pytest.raises(ValueError, match="attention_mask"):
        tiny_model(design)(random_ids(2), mask, use_cache=True)


@pytest.mark.parametrize("design", ["mixtral", "dense", "segment-then-token"])
def test_where_no_prompt_is_pooled_a_sequence_may_have_no_tokens(design: str) -> None:
    mask, model, ids = torch.ones(2, 11, dtype=torch.long), tiny_model(design).eval(), random_ids(2)
    mask[1] = 0
    found = model(ids, mask, use_cache=True).logits
    torch.testing.assert_close(found[0], model(ids, mask).logits[0])


def test_hidden_states_are_those_that_transformers_defines() -> None:
    model, ids = tiny_model("lory"), random_ids()
    inputs: list[torch.Tensor] = []
    for layer in model.model.layers:
        layer.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    out = model(ids, output_hidden_states=True)
    assert len(out.hidden_states) == 3
    for state, expected in zip(out.hidden_states[:-1], inputs, strict=True):
        torch.testing.assert_close(state, expected)
    torch.testing.assert_close(model.lm_head(out.hidden_states[-1]), out.logits)
    assert model(ids).hidden_states is None
    model.config.output_hidden_states = True
    assert len(model(ids).hidden_states) == 3


def test_a_tuple_instead_of_an_output() -> None:
    model, ids = tiny_model("lory"), random_ids()
    expected = model(ids, labels=ids)
    loss, logits, routings, cross_entropy = model(ids, labels=ids, return_dict=False)
    assert torch.equal(loss, expected.loss)
    assert torch.equal(cross_entropy, expected.loss)
    assert torch.equal(logits, expected.logits)
    assert len(routings) == 2
    model.config.return_dict = False
    assert isinstance(model(ids), tuple)
    decoder = LoriiniModel(model.config)
    assert isinstance(decoder(ids), tuple)
    assert decoder(ids, return_dict=True).last_hidden_state.shape == (*ids.shape, 16)


@pytest.mark.parametrize("block", [{}, {"block": "gpt2"}, {"qk_norm": "head"}, {"qk_norm": "all"}])
def test_attention_weights_are_those_of_eager_attention(block: dict[str, Any]) -> None:
    model, ids = tiny_model("mixtral", **block), random_ids()
    expected = model(ids).logits
    with pytest.raises(ValueError, match=r"set_attn_implementation\('eager'\)"):
        model(ids, output_attentions=True)
    model.set_attn_implementation("eager")
    assert model(ids).attentions is None
    out = model(ids, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(out.logits, expected, **CLOSE)
    assert len(out.attentions) == 2
    assert len(out.hidden_states) == 3
    for weights in out.attentions:
        assert weights.shape == (3, 2, LENGTH, LENGTH)
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, LENGTH))
        assert not weights.triu(1).any()
    arguments = {"output_attentions": True, "return_dict_in_generate": True, "max_new_tokens": 3}
    steps = model.generate(ids, **arguments, do_sample=False).attentions
    assert [weights.shape[-1] for (weights, _) in steps] == [LENGTH, LENGTH + 1, LENGTH + 2]
