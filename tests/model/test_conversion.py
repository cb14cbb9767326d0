from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from loriini import LoriiniForCausalLM, RoutingConfig
from loriini.export.converters import to_dense
from loriini.model.weights.conversion import converted, keeps_routers
from loriini.model.weights.pretrained import from_transformers
from model.families import TINY_FAMILIES
from tiny import SEGMENT, over_blocks, random_ids, run, tiny_config, tiny_model

COPIED = ["lory", "prefix", "smear", "mixtral", "label", "sequence-top2", "global-top2", "frozen", "random"]


@pytest.mark.parametrize(("name", "block"), over_blocks(COPIED))
def test_a_dense_model_copied_into_experts_computes_the_same(name: str, block: str) -> None:
    dense, ids = tiny_model("dense", num_experts=1, block=block), random_ids()
    mixture = converted(dense, tiny_config(name, block=block)).eval()
    assert mixture.config.num_experts == 4
    torch.testing.assert_close(run(mixture, ids).logits, dense(ids).logits, rtol=1e-5, atol=1e-5)
    for layer in mixture.model.layers:
        for weight in layer.mlp.experts.parameters():
            assert all(torch.equal(expert, weight[0]) for expert in weight)
            assert weight.is_contiguous()


def test_conversions_keep_the_kernel_of_attention() -> None:
    dense = LoriiniForCausalLM._from_config(tiny_config("dense", num_experts=1), attn_implementation="eager")
    mixture = converted(dense, tiny_config("lory"))
    for model in (mixture, converted(mixture, tiny_config("lory-top2"))):
        assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_conversions_keep_the_dtype_and_the_rotary_frequencies(dtype: torch.dtype) -> None:
    config = TINY_FAMILIES["llama"](num_key_value_heads=4).config
    llama = LlamaForCausalLM._from_config(config, dtype=dtype).eval()
    dense = from_transformers(llama)
    mixture = converted(dense, tiny_config("lory", num_attention_heads=4)).eval()
    back = to_dense(mixture, [torch.full((4,), 0.25)] * 2)
    ids = random_ids()
    for model in (dense, mixture, back):
        assert model.dtype == dtype
        rotary = model.model.rotary_emb if model is back else model.model.positions.angles
        assert torch.equal(rotary.inv_freq, llama.model.rotary_emb.inv_freq)
    torch.testing.assert_close(dense(ids).logits, llama(ids).logits)
    torch.testing.assert_close(back(ids).logits, llama(ids).logits)


def test_dropout_is_gpt2s() -> None:
    gpt2, ids = TINY_FAMILIES["gpt2"](resid_pdrop=0.3, embd_pdrop=0.3, attn_pdrop=0.3), random_ids()
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
        copied: LoriiniForCausalLM = converted(dense.train(training), tiny_config())
        assert copied.training == training


def test_a_soft_mixture_in_a_top_k_design_keeps_its_routers() -> None:
    soft, ids = tiny_model("lory"), random_ids()
    top2 = converted(soft, tiny_config("lory-top2"))
    gates = soft(ids).routings[0].gates
    assert torch.equal(top2(ids).routings[0].gates.topk(2).indices, gates.topk(2).indices)
    assert not torch.allclose(top2(ids).logits, soft(ids).logits, atol=1e-3)


@pytest.mark.parametrize("name", ["prefix", "smear", "mixtral", "frozen", "dense", "sequence-top2"])
def test_a_mixture_in_another_design_has_new_routers_and_the_same_experts(name: str) -> None:
    lory, design = tiny_model("lory"), tiny_config(name)
    assert not keeps_routers(lory.config.routing, design.routing)
    changed = converted(lory, design).state_dict()
    for name, weight in lory.state_dict().items():
        if ".router." not in name:
            assert torch.equal(changed[name], weight)
        elif name in changed and changed[name].shape == weight.shape:
            assert not torch.equal(changed[name], weight)


def test_routers_of_another_width_are_new() -> None:
    wide, narrow = (RoutingConfig(segment_length=SEGMENT, scorer="mlp", scorer_width=w) for w in (8, 5))
    assert not keeps_routers(wide, narrow)
    changed = converted(tiny_model(wide), tiny_config(narrow))
    assert changed.model.mixtures[0].router.scorer.hidden.shape == (5, 16)


DENSE: dict[str, Any] = {"routing": "dense", "num_experts": 1}
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    *(
        (DENSE, {"routing": name}, "gates that sum to 1")
        for name in ("switch", "sequence-top1", "global-top1", "ec-token", "ec-segment", "token-ec2")
    ),
    (DENSE, {"routing": "deepseek-v3"}, "shared experts"),
    (DENSE, {"low_rank": 8}, "low_rank"),
    (DENSE | {"block": "gpt2"}, {"block": "gpt2", "max_position_embeddings": 99}, "max_position_embeddings"),
    ({}, {"num_experts": 2}, "num_experts is 2"),
    ({"routing": "mixtral"}, {"routing": "deepseek-v3"}, "num_shared_experts"),
    ({"routing": "mixtral"}, {"routing": "aoe"}, "low_rank"),
    *(
        (source, {name: value}, f"{name} is ")
        for source in (DENSE, {})
        for name, value in (
            ("tie_word_embeddings", True),
            ("rms_norm_eps", 0.1),
            ("num_hidden_layers", 3),
            ("qk_norm", "head"),
            ("intermediate_size", 32),
            ("vocab_size", 32),
        )
    ),
]


@pytest.mark.parametrize(("source", "changes", "named"), REFUSED, ids=str)
def test_another_architecture_or_design_is_refused(
    source: dict[str, Any], changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        converted(tiny_model(**source), tiny_config(**changes))


@pytest.mark.parametrize(
    ("block", "changes"),
    [
        ("llama", {"layer_norm_epsilon": 0.1}),
        ("llama", {"max_position_embeddings": 99}),
        ("gpt2", {"rms_norm_eps": 0.1}),
    ],
)
def test_settings_of_another_block_do_not_matter(block: str, changes: dict[str, float]) -> None:
    dense, ids = tiny_model("dense", num_experts=1, block=block), random_ids()
    mixture = converted(dense, tiny_config("lory", block=block, **changes)).eval()
    torch.testing.assert_close(mixture(ids).logits, dense(ids).logits)
