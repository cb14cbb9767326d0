"""Learning rates, parameter groups, and moments that follow the copy into experts."""

import math

import pytest
import torch

from covering import one_of_each
from loriini import LoriiniForCausalLM
from loriini.model.mixture import parts
from loriini.train.optimizer import OptimizerConfig, decays, learning_rate_factor, make_optimizer, take_step
from tiny import BLOCKS, GRID, random_ids, run, tiny_model

CONFIG = OptimizerConfig(learning_rate=1e-2, router_rate=3.0, expert_rate=0.5)


def test_rate_warms_up_linearly_and_falls_by_a_cosine() -> None:
    config = OptimizerConfig(warmup=0.05, final_rate=0.1)
    rates = [learning_rate_factor(config, step, 200) for step in range(201)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert rates[10] == pytest.approx(1.0)
    assert rates[105] == pytest.approx(0.1 + 0.9 * 0.5)
    assert rates[58] == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 48 / 190)))
    assert rates[200] == pytest.approx(0.1)
    assert rates[9:] == sorted(rates[9:], reverse=True)


def test_rate_stays_or_falls_at_the_end() -> None:
    constant = OptimizerConfig(schedule="constant")
    assert {learning_rate_factor(constant, step, 200) for step in range(10, 201)} == {1.0}
    late = OptimizerConfig(schedule="warmup_stable_decay", warmup=0.1, decay=0.2, final_rate=0.0)
    rates = [learning_rate_factor(late, step, 100) for step in range(100)]
    assert set(rates[9:80]) == {1.0}
    assert rates[80:] == pytest.approx([i / 20 for i in reversed(range(20))])


@one_of_each(name=GRID, block=BLOCKS)
def test_every_trainable_parameter_is_in_one_group_with_its_rates(name: str, block: str) -> None:
    model = tiny_model(name, block=block)
    optimizer = make_optimizer(model, CONFIG)
    names, part_of = {p: n for n, p in model.named_parameters()}, parts(model)
    seen = [names[p] for group in optimizer.param_groups for p in group["params"]]
    assert sorted(seen) == sorted(n for n, p in model.named_parameters() if p.requires_grad)
    for group in optimizer.param_groups:
        ((part, decayed),) = {(part_of[p], decays(names[p], p)) for p in group["params"]}
        assert group["peak"] == pytest.approx(1e-2 * {"router": 3.0, "experts": 0.5, "rest": 1.0}[part])
        assert group["weight_decay"] == (0.1 if decayed else 0.0)
        assert group["eps"] == (1e-8 / 4 if part == "experts" else 1e-8)
        assert group["betas"] == (0.9, 0.95)


def groups_of(model: LoriiniForCausalLM) -> dict[str, tuple[str, bool]]:
    return {n: (parts(model)[p], decays(n, p)) for n, p in model.named_parameters()}


def test_parameter_groups() -> None:
    groups = groups_of(tiny_model("mixtral"))
    assert groups["model.embed_tokens.weight"] == groups["lm_head.weight"] == ("rest", True)
    assert groups["model.layers.0.self_attn.q_proj.weight"] == ("rest", True)
    assert groups["model.layers.0.input_layernorm.weight"] == groups["model.norm.weight"] == ("rest", False)
    assert groups["model.layers.1.mlp.router.scorer.weight"] == ("router", True)
    assert groups["model.layers.1.mlp.experts.down_proj"] == ("experts", True)
    groups = groups_of(tiny_model("mixtral", block="gpt2"))
    assert (
        groups["model.positions.weight"] == groups["model.layers.0.self_attn.c_attn.weight"] == ("rest", True)
    )
    assert groups["model.norm.bias"] == groups["model.layers.0.self_attn.c_attn.bias"] == ("rest", False)
    assert groups["model.layers.1.mlp.experts.up_proj"] == ("experts", True)
    assert groups["model.layers.1.mlp.experts.up_bias"] == ("experts", False)


@pytest.mark.parametrize("limit", [1e-3, 1e9])
def test_a_step_clips_as_if_gradients_were_scaled_before(limit: float) -> None:
    fused, plain = tiny_model("lory"), tiny_model("lory")
    plain.load_state_dict(fused.state_dict())
    optimizer, twin = make_optimizer(fused, CONFIG), make_optimizer(plain, CONFIG)
    for _ in range(3):
        ids = random_ids()
        for model in (fused, plain):
            run(model, ids, labels=ids).loss.backward()
        norm, taken = take_step(fused, optimizer, limit, torch.zeros(()))
        expected = torch.nn.utils.clip_grad_norm_(plain.parameters(), limit)
        twin.step()
        torch.testing.assert_close(norm, expected)
        assert taken
        for ours, theirs in zip(fused.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
            moments = [each.state[p]["exp_avg"] for each, p in ((optimizer, ours), (twin, theirs))]
            torch.testing.assert_close(*moments, rtol=1e-3, atol=1e-8)
        optimizer.zero_grad()
        twin.zero_grad()


@pytest.mark.parametrize(("loss", "gradient"), [(math.nan, 1.0), (0.0, math.inf), (0.0, math.nan)])
def test_a_step_that_is_not_finite_changes_nothing(loss: float, gradient: float) -> None:
    model = tiny_model("lory")
    optimizer = make_optimizer(model, CONFIG)

    def step(loss: float, gradient: float) -> bool:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        model.lm_head.weight.grad.fill_(gradient)
        return bool(take_step(model, optimizer, 1.0, torch.tensor(loss))[1])

    assert step(0.0, 1.0)
    weight, state = model.lm_head.weight, optimizer.state[model.lm_head.weight]
    before = [t.clone() for t in (weight, *state.values())]
    assert not step(loss, gradient)
    assert all(torch.equal(a, b) for a, b in zip(before, (weight, *state.values()), strict=True))
    assert step(0.0, 1.0)
    assert not torch.equal(before[0], weight)
