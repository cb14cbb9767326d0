"""Mixtures that transformers trained: the same logits as rows, and without their routers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    PhimoeConfig,
    PhimoeForCausalLM,
    PreTrainedModel,
)

from loriini import DESIGNS, LoriiniForCausalLM
from loriini.cli import main
from loriini.errors import InputError
from loriini.model.loading import load_model
from loriini.model.pretrained import from_pretrained_mixture, router_free
from loriini.routing.losses import load_balance
from runs import EOS, write_tokenizer
from runs import VOCABULARY as WORDS
from tiny import VOCABULARY, random_ids, tiny_model

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
NODES = ["gate", "up", "activated_gate", "hidden", "output"]
NORMS = [1, 2, "inf"]


SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
}


def tiny_mixtral(**changes: Any) -> MixtralForCausalLM:
    return MixtralForCausalLM(MixtralConfig(**{**SIZES, "num_local_experts": 5, **changes})).eval()


def tiny_olmoe(**changes: Any) -> OlmoeForCausalLM:
    config = OlmoeConfig(**{**SIZES, "num_experts": 5, "num_experts_per_tok": 3, **changes})
    return taught(OlmoeForCausalLM(config).eval())


def tiny_phimoe(**changes: Any) -> PhimoeForCausalLM:
    """A Phi-3.5-MoE with every bias, and with a jitter so wide that gates are often not 1."""
    biases = {"attention_bias": True, "lm_head_bias": True}
    routing = {"num_local_experts": 5, "router_jitter_noise": 0.3, "input_jitter_noise": 0.01}
    return taught(PhimoeForCausalLM(PhimoeConfig(**{**SIZES, **biases, **routing, **changes})).eval())


def taught(model: PreTrainedModel) -> PreTrainedModel:
    """A model whose norms and biases have learned something."""
    for name, weight in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(weight, mean=float("norm.weight" in name), std=0.3)
    return model


@pytest.mark.parametrize(
    "changes",
    [{}, {"num_experts_per_tok": 3}, {"head_dim": 6}, {"tie_word_embeddings": True}, {"vocab_size": 32}],
    ids=str,
)
@torch.no_grad()
def test_a_mixtral_is_a_row(changes: dict[str, Any]) -> None:
    mixtral = tiny_mixtral(**changes)
    ids = random_ids() % mixtral.config.vocab_size
    model = from_pretrained_mixture(mixtral)
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
def test_an_olmoe_is_a_row(changes: dict[str, Any]) -> None:
    olmoe, ids = tiny_olmoe(**changes), random_ids()
    model = from_pretrained_mixture(olmoe)
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
def test_a_phimoe_is_a_row(changes: dict[str, Any]) -> None:
    phimoe, ids = tiny_phimoe(**changes), random_ids()
    model = from_pretrained_mixture(phimoe)
    for length in (6, 11):  # positions are scaled otherwise from 8 on
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


def test_a_phimoe_loads_and_runs_without_its_routers(tmp_path: Path) -> None:
    phimoe, ids = tiny_phimoe(vocab_size=WORDS, eos_token_id=EOS, rope_parameters=LONG), random_ids()
    phimoe.save_pretrained(write_tokenizer(tmp_path))
    model, _ = load_model(tmp_path)
    torch.testing.assert_close(model(ids).logits, phimoe(ids).logits, **CLOSE)
    free = router_free(model, "output")
    free.save_pretrained(tmp_path / "free")
    assert torch.equal(LoriiniForCausalLM.from_pretrained(tmp_path / "free")(ids).logits, free(ids).logits)


def test_an_olmoe_loads_and_runs_without_its_routers(tmp_path: Path) -> None:
    olmoe, ids = tiny_olmoe(vocab_size=WORDS, eos_token_id=EOS), random_ids()
    olmoe.save_pretrained(write_tokenizer(tmp_path))
    model, _ = load_model(tmp_path)
    torch.testing.assert_close(model(ids).logits, olmoe(ids).logits, **CLOSE)
    free = router_free(model, "output")
    assert set((free(ids).routings[0].gates > 0).sum(-1).tolist()) == {3}
    free.save_pretrained(tmp_path / "free")
    assert torch.equal(LoriiniForCausalLM.from_pretrained(tmp_path / "free")(ids).logits, free(ids).logits)


def test_load_balance_of_one_layer_is_transformers() -> None:
    mixtral, ids = tiny_mixtral(num_hidden_layers=1), random_ids()
    ours = load_balance(from_pretrained_mixture(mixtral)(ids).routings[0])
    torch.testing.assert_close(ours, mixtral(ids, output_router_logits=True).aux_loss)


def test_a_mixtral_keeps_its_dtype_and_mode() -> None:
    model = from_pretrained_mixture(tiny_mixtral().bfloat16().train())
    assert model.dtype == torch.bfloat16
    assert model.training


@pytest.mark.parametrize(
    "changes", [{"sliding_window": 8}, {"router_jitter_noise": 0.1}, {"hidden_act": "gelu"}], ids=str
)
def test_what_our_block_has_not_is_refused(changes: dict[str, Any]) -> None:
    (name,) = changes
    with pytest.raises(ValueError, match=f"{name} is .*; only mixtures with"):
        from_pretrained_mixture(tiny_mixtral(**changes))


def test_what_our_olmoe_and_phimoe_have_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r"clip_qkv is 8\.0; only mixtures with None"):
        from_pretrained_mixture(tiny_olmoe(clip_qkv=8.0))
    with pytest.raises(ValueError, match="num_experts_per_tok is 3; only mixtures with 2"):
        from_pretrained_mixture(tiny_phimoe(num_experts_per_tok=3))
    with pytest.raises(ValueError, match="sliding_window is 8; only mixtures with None"):
        from_pretrained_mixture(tiny_phimoe(sliding_window=8))


TINY = [tiny_mixtral, tiny_olmoe, tiny_phimoe]


def router_free_twin(
    x_MD: Tensor, gate_up: Tensor, down: Tensor, node: str, norm: float, k: int
) -> tuple[Tensor, Tensor]:
    """Output (M, D) and gates (M, E) by a loop over tokens and experts."""
    outputs, all_gates = [], []
    for x in x_MD:
        computed = []
        for (gate, up), out in zip(gate_up, down, strict=True):
            g, u = gate @ x, up @ x
            h = silu(g) * u
            computed.append({"gate": g, "up": u, "activated_gate": silu(g), "hidden": h, "output": out @ h})
        norms = torch.stack([torch.linalg.vector_norm(nodes[node], norm) for nodes in computed])
        chosen = norms.topk(k).indices
        gates = torch.zeros_like(norms).scatter(0, chosen, norms[chosen].softmax(0))
        outputs.append(sum(gates[i] * computed[i]["output"] for i in chosen.tolist()))
        all_gates.append(gates)
    return torch.stack(outputs), torch.stack(all_gates)


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("tiny", TINY)
@torch.no_grad()
def test_without_routers_activations_choose(
    tiny: Callable[[], PreTrainedModel], node: str, norm: int | str
) -> None:
    model, ids = from_pretrained_mixture(tiny()), random_ids()
    seen: dict[str, Tensor] = {}
    layer = model.model.mixtures[0]
    layer.register_forward_hook(lambda _, inputs, output: seen.update(x=inputs[0], y=output[0]))
    routing = router_free(model, node, norm)(ids).routings[0]
    experts = layer.experts
    y, gates = router_free_twin(
        seen["x"].flatten(0, 1),
        experts.gate_up_proj,
        experts.down_proj,
        node,
        float(norm),
        model.config.routing.top_k,
    )
    torch.testing.assert_close(routing.gates, gates, **CLOSE)
    torch.testing.assert_close(seen["y"].flatten(0, 1), y, **CLOSE)


def test_router_free_keeps_the_experts_and_survives_saving(tmp_path: Path) -> None:
    mixtral, ids = tiny_mixtral(), random_ids()
    model = router_free(from_pretrained_mixture(mixtral), "output", "inf", gates="uniform")
    for layer, theirs in zip(model.model.mixtures, mixtral.model.layers, strict=True):
        assert torch.equal(layer.experts.down_proj, theirs.mlp.experts.down_proj)
    assert not any(".router." in name for name in model.state_dict())
    assert set(model(ids).routings[0].gates.unique().tolist()) == {0.0, 0.5}
    model.save_pretrained(tmp_path)
    assert torch.equal(LoriiniForCausalLM.from_pretrained(tmp_path)(ids).logits, model(ids).logits)


@pytest.mark.parametrize(
    ("design", "node", "norm", "reason"),
    [
        ("mixtral", "low_rank", 2, "node of factorised experts"),
        ("mixtral", "middle", 2, "routing.node is 'middle'"),
        ("mixtral", "hidden", 3, "routing.norm is 3"),
        ("lory", "hidden", 2, "it needs unit=token"),
    ],
)
def test_router_free_refuses_what_cannot_be(design: str, node: str, norm: int, reason: str) -> None:
    model = tiny_model(design)
    with pytest.raises(ValueError, match=reason):
        router_free(model, node, norm)
    assert model.config.routing.scorer == DESIGNS[design].scorer


def test_a_folder_of_a_mixtral_loads(tmp_path: Path) -> None:
    mixtral, ids = tiny_mixtral(vocab_size=WORDS, eos_token_id=EOS), random_ids()
    mixtral.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    model, tokenizer = load_model(tmp_path)
    torch.testing.assert_close(model(ids).logits, mixtral(ids).logits, **CLOSE)
    assert tokenizer.eos_token_id == EOS


@pytest.mark.parametrize("tiny", TINY)
def test_evaluate_takes_it_with_its_routers_and_without(
    tiny: Callable[..., PreTrainedModel], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny(vocab_size=WORDS).save_pretrained(write_tokenizer(tmp_path))
    text = tmp_path / "held-out.txt"
    text.write_text(" ".join(f"w{i % 50}" for i in range(100)))
    evaluate = ["evaluate", str(tmp_path), "--documents", str(text), "--length", "32"]

    def measured(*more: str) -> dict[str, Any]:
        main([*evaluate, *more])
        return json.loads(capsys.readouterr().out)

    routed, free = measured(), measured("--router-free", "hidden:inf")
    assert routed["causality"] == free["causality"] == "strict"
    assert routed["tokens"] == free["tokens"]
    assert routed["perplexity"] != free["perplexity"]
    with pytest.raises(SystemExit) as exit_:
        main([*evaluate, "--router-free", "hidden:two"])
    assert exit_.value.code == 2
    assert "--router-free hidden:two: routing.norm is 'two'" in capsys.readouterr().err


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, **sizes)).save_pretrained(write_tokenizer(tmp_path))
    with pytest.raises(InputError, match="its type is llama, not loriini or mixtral or olmoe or phimoe"):
        load_model(tmp_path)
