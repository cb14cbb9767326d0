"""Pretrained mixtures of transformers have the same logits as designs, and their weights are not copied."""

from pathlib import Path
from typing import Any

import pytest
import torch

from loriini.model.weights.loading import load_model
from loriini.model.weights.pretrained import from_transformers
from loriini.routing.losses import load_balance
from model.mixtures import TINY, tiny_mixtral, tiny_olmoe, tiny_phimoe
from runs import EOS, write_tokenizer
from runs import VOCABULARY as WORDS
from tiny import random_ids

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.mark.parametrize(
    "changes",
    [{}, {"num_experts_per_tok": 3}, {"head_dim": 6}, {"tie_word_embeddings": True}, {"vocab_size": 32}],
    ids=str,
)
@torch.no_grad()
def test_a_mixtral_has_the_same_logits(changes: dict[str, Any]) -> None:
    mixtral = tiny_mixtral(**changes)
    ids = random_ids() % mixtral.config.vocab_size
    model = from_transformers(mixtral)
    torch.testing.assert_close(model(ids).logits, mixtral(ids).logits, **CLOSE)
    assert model.config.routing.top_k == mixtral.config.num_experts_per_tok
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    ours, theirs = model(ids, attention_mask=mask).logits, mixtral(ids, attention_mask=mask).logits
    torch.testing.assert_close(ours[mask.bool()], theirs[mask.bool()], **CLOSE)
    tokens = [m.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=2) for m in (model, mixtral)]
    assert torch.equal(*tokens)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_topk_prob": True},
        {"num_key_value_heads": 4},
        {"tie_word_embeddings": True},
        {"attention_bias": True},
    ],
    ids=str,
)
@torch.no_grad()
def test_an_olmoe_has_the_same_logits(changes: dict[str, Any]) -> None:
    olmoe, ids = tiny_olmoe(**changes), random_ids()
    model = from_transformers(olmoe)
    torch.testing.assert_close(model(ids).logits, olmoe(ids).logits, **CLOSE)
    tokens = [m.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=2) for m in (model, olmoe)]
    assert torch.equal(*tokens)
    assert model.config.parameters()[0] == sum(p.numel() for p in set(model.parameters()))


LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.5],
    "long_factor": [2.0, 4.0],
    "short_mscale": 1.2,
    "long_mscale": 1.4,
    "original_max_position_embeddings": 8,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention_bias": False, "lm_head_bias": False},
        {"rope_parameters": LONG},
        {"router_jitter_noise": 0.01, "sliding_window": 4096 * 32},
        {"tie_word_embeddings": True},
    ],
    ids=str,
)
@torch.no_grad()
def test_a_phimoe_has_the_same_logits(changes: dict[str, Any]) -> None:
    phimoe, ids = tiny_phimoe(**changes), random_ids()
    model = from_transformers(phimoe)
    for length in (6, 11):  # from 8 on positions are scaled by other factors
        out = model(ids[:, :length])
        torch.testing.assert_close(out.logits, phimoe(ids[:, :length]).logits, **CLOSE)
    assert all(((r.gates > 0).sum(-1) == 2).all() for r in out.routings)
    assert any(((r.gates > 0) & (r.gates < 1)).any() for r in out.routings)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    ours, theirs = model(ids, attention_mask=mask).logits, phimoe(ids, attention_mask=mask).logits
    torch.testing.assert_close(ours[mask.bool()], theirs[mask.bool()], **CLOSE)
    tokens = [m.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=2) for m in (model, phimoe)]
    assert torch.equal(*tokens)
    assert model.config.parameters()[0] == sum(p.numel() for p in set(model.parameters()))


def test_load_balance_of_one_layer_is_transformers() -> None:
    mixtral, ids = tiny_mixtral(num_hidden_layers=1), random_ids()
    ours = load_balance(from_transformers(mixtral)(ids).routings[0])
    torch.testing.assert_close(ours, mixtral(ids, output_router_logits=True).aux_loss)


@pytest.mark.parametrize("tiny", TINY)
def test_load_balancing_keeps_its_weight(tiny: Any) -> None:
    model = from_transformers(tiny(router_aux_loss_coef=0.037))
    assert model.config.routing.load_balance == 0.037


def test_a_mixtral_keeps_its_dtype_and_mode() -> None:
    model = from_transformers(tiny_mixtral().bfloat16().train())
    assert model.dtype == torch.bfloat16
    assert model.training


@pytest.mark.parametrize("tiny", TINY)
@pytest.mark.parametrize("tied", [False, True])
def test_all_weights_but_gate_and_up_are_shared(tiny: Any, tied: bool) -> None:
    mixture = tiny(tie_word_embeddings=tied)
    model = from_transformers(mixture)
    theirs = {weight.untyped_storage().data_ptr() for weight in mixture.state_dict().values()}
    ours = {name: weight.untyped_storage().data_ptr() for name, weight in model.state_dict().items()}
    copied = {name for name, pointer in ours.items() if pointer not in theirs}
    assert {name.rsplit(".", 1)[-1] for name in copied} == {"gate_proj", "up_proj"}
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    assert not any(buffer.is_meta for buffer in model.buffers())


@pytest.mark.parametrize("changes", [{"router_jitter_noise": 0.1}, {"hidden_act": "gelu"}], ids=str)
def test_settings_that_our_block_lacks_are_refused(changes: dict[str, Any]) -> None:
    (name,) = changes
    with pytest.raises(ValueError, match=f"{name} is .*; only models with"):
        from_transformers(tiny_mixtral(**changes))


def test_settings_that_our_olmoe_and_phimoe_lack_are_refused() -> None:
    with pytest.raises(ValueError, match=r"clip_qkv is 8\.0; only models with None"):
        from_transformers(tiny_olmoe(clip_qkv=8.0))
    with pytest.raises(ValueError, match="num_experts_per_tok is 3; only models with 2"):
        from_transformers(tiny_phimoe(num_experts_per_tok=3))
    with pytest.raises(ValueError, match="sliding_window is 8, which our attention does not have"):
        from_transformers(tiny_phimoe(sliding_window=8))


def test_a_folder_of_a_mixtral_loads(tmp_path: Path) -> None:
    mixtral, ids = tiny_mixtral(vocab_size=WORDS, eos_token_id=EOS), random_ids()
    mixtral.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    model, tokenizer = load_model(tmp_path)
    torch.testing.assert_close(model(ids).logits, mixtral(ids).logits, **CLOSE)
    assert tokenizer.eos_token_id == EOS
