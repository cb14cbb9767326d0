from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from loriini import DESIGNS, LoriiniForCausalLM, RoutingConfig
from loriini.export.architectures import to_dense
from loriini.model.weights.conversion import change_design, copy_into_experts, keeps_routers
from loriini.model.weights.pretrained import from_transformers
from tiny import SEGMENT, VOCABULARY, over_blocks, random_ids, run, tiny_config, tiny_model

COPIED = [
    "lory",
    "prefix",
    "smear",
    "mixtral",
    "label",
    "sequence-top2",
    "global-top2",
    "frozen",
    "random",
]


def tiny_llama(**changes: int) -> LlamaForCausalLM:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=VOCABULARY, initializer_range=0.3, **{**sizes, **changes})
    return LlamaForCausalLM(config).eval()


@pytest.mark.parametrize(("name", "block"), over_blocks(COPIED))
def test_a_dense_model_copied_into_experts_computes_the_same(name: str, block: str) -> None:
    dense, ids = tiny_model("dense", num_experts=1, block=block), random_ids()
    mixture = copy_into_experts(dense, tiny_config(name, block=block)).eval()
    assert mixture.config.num_experts == 4
    torch.testing.assert_close(run(mixture, ids).logits, dense(ids).logits, rtol=1e-5, atol=1e-5)
    for layer in mixture.model.layers:
        for weight in layer.mlp.experts.parameters():
            assert all(torch.equal(expert, weight[0]) for expert in weight)
            assert weight.is_contiguous()


@pytest.mark.parametrize(
    "name", ["switch", "sequence-top1", "global-top1", "ec-token", "ec-segment", "token-ec2"]
)
def test_copying_is_refused_where_gates_do_not_sum_to_one(name: str) -> None:
    selection = DESIGNS[name].selection
    with pytest.raises(
        ValueError, match=f"gates that sum to 1; selection={selection} with gates=softmax_all"
    ):
        copy_into_experts(tiny_model("dense", num_experts=1), tiny_config(name))


def test_copying_is_refused_beside_shared_experts() -> None:
    with pytest.raises(ValueError, match="need a router, no shared experts"):
        copy_into_experts(tiny_model("dense", num_experts=1), tiny_config("deepseek-v3"))


def test_conversions_keep_the_kernel_of_attention() -> None:
    dense = LoriiniForCausalLM._from_config(tiny_config("dense", num_experts=1), attn_implementation="eager")
    mixture = copy_into_experts(dense, tiny_config("lory"))
    for model in (mixture, change_design(mixture, tiny_config("lory-top2"))):
        assert model.config._attn_implementation == "eager"


def test_only_a_dense_model_is_copied() -> None:
    with pytest.raises(ValueError, match=r"has 4 experts; it must be dense"):
        copy_into_experts(tiny_model("lory"), tiny_config("lory"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_conversions_keep_the_dtype_and_the_rotary_frequencies(dtype: torch.dtype) -> None:
    llama = LlamaForCausalLM._from_config(tiny_llama().config, dtype=dtype).eval()
    dense = from_transformers(llama)
    mixture = copy_into_experts(dense, tiny_config("lory", num_attention_heads=4)).eval()
    back = to_dense(mixture, [torch.full((4,), 0.25)] * 2)
    ids = random_ids()
    for model in (dense, mixture, back):
        assert model.dtype == dtype
        rotary = model.model.rotary_emb if model is back else model.model.positions.angles
        assert torch.equal(rotary.inv_freq, llama.model.rotary_emb.inv_freq)
    torch.testing.assert_close(dense(ids).logits, llama(ids).logits)
    torch.testing.assert_close(back(ids).logits, llama(ids).logits)


@pytest.mark.parametrize(
    "changes",
    [{}, {"num_key_value_heads": 2}, {"tie_word_embeddings": True}],
    ids=["plain", "grouped", "tied"],
)
def test_llama_there_and_back(changes: dict[str, int]) -> None:
    llama, ids = tiny_llama(**changes), random_ids()
    back = to_dense(from_transformers(llama), [torch.ones(1)] * 2)
    torch.testing.assert_close(back(ids).logits, llama(ids).logits, rtol=1e-5, atol=1e-5)
    assert back.state_dict().keys() == llama.state_dict().keys()


def tiny_gpt2(**changes: object) -> GPT2LMHeadModel:
    sizes = {"n_embd": 16, "n_inner": 24, "n_layer": 2, "n_head": 4, "n_positions": 32}
    special = {"bos_token_id": 0, "eos_token_id": 1}
    config = GPT2Config(vocab_size=VOCABULARY, initializer_range=0.3, **{**sizes, **special, **changes})
    gpt2 = GPT2LMHeadModel(config).eval()
    for name, parameter in gpt2.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    return gpt2


@pytest.mark.parametrize(
    "changes", [{}, {"n_inner": None}, {"tie_word_embeddings": False}], ids=["plain", "four wide", "untied"]
)
def test_one_expert_of_the_gpt2_block_is_transformers_gpt2(changes: dict[str, object]) -> None:
    gpt2, ids = tiny_gpt2(**changes), random_ids()
    dense = from_transformers(gpt2)
    assert sum(p.numel() for p in dense.parameters()) == sum(p.numel() for p in gpt2.parameters())
    torch.testing.assert_close(dense(ids).logits, gpt2(ids).logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(dense(ids, labels=ids).loss, gpt2(ids, labels=ids).loss)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    expected = gpt2(ids, attention_mask=mask, position_ids=positions).logits[mask.bool()]
    found = dense(ids, attention_mask=mask).logits[mask.bool()]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    arguments = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 2}
    assert torch.equal(dense.generate(ids, **arguments), gpt2.generate(ids, **arguments))


def test_one_expert_of_the_gpt2_block_learns_as_transformers_gpt2() -> None:
    gpt2, ids = tiny_gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0).train(), random_ids()
    dense = from_transformers(gpt2)
    for model in (gpt2, dense):
        model(ids, labels=ids).loss.backward()
    theirs, ours = gpt2.transformer.h[1].mlp, dense.model.layers[1].mlp.experts
    pairs = [
        (ours.up_proj.grad[0], theirs.c_fc.weight.grad.T),
        (ours.down_bias.grad[0], theirs.c_proj.bias.grad),
        (dense.model.positions.weight.grad, gpt2.transformer.wpe.weight.grad),
        (dense.lm_head.weight.grad, gpt2.transformer.wte.weight.grad),
    ]
    for found, expected in pairs:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_a_gpt2_of_unusual_settings_is_refused() -> None:
    with pytest.raises(ValueError, match="activation_function is 'relu'; only models with 'gelu_new'"):
        from_transformers(tiny_gpt2(activation_function="relu"))


def test_dropout_may_be_an_integer_as_in_gpt2() -> None:
    assert from_transformers(tiny_gpt2(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).config.dropout == 0


def test_dropout_is_gpt2s() -> None:
    gpt2, ids = tiny_gpt2(resid_pdrop=0.3, embd_pdrop=0.3, attn_pdrop=0.3), random_ids()
    dense = from_transformers(gpt2)
    assert dense.config.dropout == dense.model.layers[0].self_attn.attn_dropout.p == 0.3
    logits = []
    for model in (gpt2.train(), dense.train()):
        torch.manual_seed(1)
        logits.append(model(ids).logits)
    torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(logits[0], gpt2.eval()(ids).logits, atol=1e-2)


def test_a_copy_is_in_the_mode_of_what_it_copies() -> None:
    dense = tiny_model("dense", num_experts=1)
    for training in (False, True):
        copied: LoriiniForCausalLM = copy_into_experts(dense.train(training), tiny_config())
        assert copied.training == training


def test_factorised_experts_are_no_copies_of_an_ffn() -> None:
    with pytest.raises(ValueError, match="low_rank is 8, but the model's is None"):
        copy_into_experts(tiny_model("dense", num_experts=1), tiny_config("lory", low_rank=8))


def test_a_soft_mixture_in_a_top_k_design_keeps_its_routers() -> None:
    soft, ids = tiny_model("lory"), random_ids()
    top2 = change_design(soft, tiny_config("lory-top2"))
    gates = soft(ids).routings[0].gates
    assert torch.equal(top2(ids).routings[0].gates.topk(2).indices, gates.topk(2).indices)
    assert not torch.allclose(top2(ids).logits, soft(ids).logits, atol=1e-3)


@pytest.mark.parametrize("name", ["prefix", "smear", "mixtral", "frozen", "dense", "sequence-top2"])
def test_a_mixture_in_another_design_has_new_routers_and_the_same_experts(name: str) -> None:
    lory, design = tiny_model("lory"), tiny_config(name)
    assert not keeps_routers(lory.config.routing, design.routing)
    changed = change_design(lory, design).state_dict()
    for name, weight in lory.state_dict().items():
        if ".router." not in name:
            assert torch.equal(changed[name], weight)
        elif name in changed and changed[name].shape == weight.shape:
            assert not torch.equal(changed[name], weight)


def test_routers_of_another_width_are_new() -> None:
    wide, narrow = (RoutingConfig(segment_length=SEGMENT, scorer="mlp", scorer_width=w) for w in (8, 5))
    assert not keeps_routers(wide, narrow)
    changed = change_design(tiny_model(wide), tiny_config(narrow))
    assert changed.model.mixtures[0].router.scorer.hidden.shape == (5, 16)


def test_shared_experts_come_from_no_other_design() -> None:
    with pytest.raises(ValueError, match="num_shared_experts is 1, but the mixture has 0"):
        change_design(tiny_model("mixtral"), tiny_config("deepseek-v3"))


def test_factorised_experts_come_from_no_others() -> None:
    with pytest.raises(ValueError, match="low_rank is 8, but the model's is None"):
        change_design(tiny_model("mixtral"), tiny_config("aoe"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"tie_word_embeddings": True},
            "tie_word_embeddings is True, but the model's is False; give the same",
        ),
        ({"rms_norm_eps": 0.1}, r"rms_norm_eps is 0\.1, but the model's is 1e-06"),
        ({"num_hidden_layers": 3}, "num_hidden_layers is 3, but the model's is 2"),
        ({"qk_norm": "head"}, "qk_norm is 'head', but the model's is None"),
        ({"intermediate_size": 32}, "intermediate_size is 32, but the model's is 24"),
        ({"vocab_size": 32}, "vocab_size is 32, but the model's is 61"),
    ],
    ids=str,
)
def test_another_architecture_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        copy_into_experts(tiny_model("dense", num_experts=1), tiny_config("lory", **changes))
    with pytest.raises(ValueError, match=reason):
        change_design(tiny_model("lory"), tiny_config("prefix", **changes))


@pytest.mark.parametrize(
    ("block", "changes"), [("llama", {"layer_norm_epsilon": 0.1}), ("gpt2", {"rms_norm_eps": 0.1})]
)
def test_settings_of_another_block_do_not_matter(block: str, changes: dict[str, float]) -> None:
    dense, ids = tiny_model("dense", num_experts=1, block=block), random_ids()
    mixture = copy_into_experts(dense, tiny_config("lory", block=block, **changes)).eval()
    torch.testing.assert_close(mixture(ids).logits, dense(ids).logits)


def test_another_number_of_experts_is_another_design() -> None:
    with pytest.raises(ValueError, match="num_experts is 2, but the model's is 4"):
        change_design(tiny_model("lory"), tiny_config("prefix", num_experts=2))


def test_learned_positions_are_of_the_same_number() -> None:
    dense = tiny_model("dense", num_experts=1, block="gpt2")
    longer = tiny_config("lory", block="gpt2", max_position_embeddings=99)
    with pytest.raises(ValueError, match="max_position_embeddings is 99, but the model's is"):
        copy_into_experts(dense, longer)
    llama, ids = tiny_model("dense", num_experts=1), random_ids()
    mixture = copy_into_experts(llama, tiny_config("lory", max_position_embeddings=99))
    torch.testing.assert_close(mixture(ids).logits, llama(ids).logits)
