"""Muon: torch's own as its twin, what it steps, and what it leaves as it is."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from covering import one_of_each
from loriini.common.errors import InputError
from loriini.train import muon
from loriini.train.muon import MATRICES, Muon, orthogonal
from loriini.train.optimizer import (
    OptimizerConfig,
    hidden_matrices,
    make_optimizer,
    set_learning_rate,
    take_step,
)
from tiny import random_ids, run, tiny_model

CONFIG = OptimizerConfig(name="muon", learning_rate=1e-2, matrix_rate=0.5, expert_rate=3.0, router_rate=2.0)
SHAPES = [(6, 6), (5, 9), (9, 5), (4, 5, 9), (3, 9, 5), (1, 6, 6), (1, 7), (7, 2), (4, 5, 12), (1, 8, 40)]


def muon_of(*parameters: nn.Parameter, lr: float = 0.1, decay: float = 0.2, momentum: float = 0.9) -> Muon:
    """Muon of nothing but matrices."""
    group = {"params": parameters, MATRICES: True, "momentum": momentum}
    return Muon([group], lr=lr, weight_decay=decay, fused=True)


def matrices_of(parameter: Tensor) -> list[Tensor]:
    """Copies of the matrices of a stack, or of the only one."""
    return [matrix.detach().clone() for matrix in (parameter if parameter.dim() == 3 else [parameter])]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_matrix_of_a_stack_takes_the_steps_of_torchs_muon(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bfloat16, as torch's; in float32 a step is the same up to the rounding of bfloat16.

    The steps of matrices that are twice as wide as high, or higher than wide, are not rounded as torch's are.
    """
    weights: list[list[Tensor]] = []
    start = torch.randn(shape)
    for dtype in (torch.bfloat16, torch.float32):
        monkeypatch.setattr(muon, "iteration_dtype", lambda x, dtype=dtype: dtype)
        ours = nn.Parameter(start.clone())
        theirs = [nn.Parameter(matrix) for matrix in matrices_of(ours)]
        optimizer = muon_of(ours)
        settings: dict[str, Any] = {"lr": 0.1, "weight_decay": 0.2, "momentum": 0.9}
        twin = torch.optim.Muon(theirs, adjust_lr_fn="match_rms_adamw", **settings)
        torch.manual_seed(1)
        for _ in range(4):
            ours.grad = torch.randn(shape)
            for matrix, gradient in zip(theirs, matrices_of(ours.grad), strict=True):
                matrix.grad = gradient
            optimizer.step()
            twin.step()
        weights.append(matrices_of(ours))
    for exact, rounded, matrix in zip(weights[1], weights[0], theirs, strict=True):
        steps = 4 * 0.1 * 0.2 * exact.numel() ** 0.5
        assert 0 < (exact - matrix).norm() < 0.03 * steps
        if max(matrix.shape) < 2 * min(matrix.shape):
            torch.testing.assert_close(rounded, matrix.detach(), rtol=1e-5, atol=1e-5)
        else:
            assert (rounded - matrix).norm() < 0.05 * steps


@one_of_each(shape=[(16, 16), (8, 40), (40, 8), (3, 16, 24)], scale=[1e-6, 1.0, 1e6])
def test_singular_values_end_near_one_and_singular_vectors_stay(shape: tuple[int, ...], scale: float) -> None:
    x = torch.randn(shape).double() * scale
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    kept = u.mT @ orthogonal(x) @ vh.mT
    values = kept.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(kept, torch.diag_embed(values))
    large = s / s.pow(2).sum(-1, keepdim=True).sqrt() > 0.01  # five iterations raise others less
    assert large.float().mean() > 0.8
    assert 0.65 < values[large].min() <= values[large].max() < 1.25


def test_two_iterations_at_once_are_one_after_the_other() -> None:
    y = torch.randn(3, 8, 20).double() / 10
    torch.testing.assert_close(muon.twice(y), muon.once(muon.once(y)))


@one_of_each(shape=[(64, 64), (64, 176), (3, 40, 160)], power=[0.0, 0.5, 1.0])
def test_in_bfloat16_steps_are_nearly_the_same(shape: tuple[int, ...], power: float) -> None:
    """Also of matrices whose i-th singular value is i^-power: small ones must not grow without bounds."""
    u, s, vh = torch.linalg.svd(torch.randn(shape).double(), full_matrices=False)
    x = (u * torch.arange(1, s.shape[-1] + 1) ** -power @ vh).bfloat16()
    found, exact = orthogonal(x).double(), orthogonal(x.double())
    assert (found - exact).norm() < 0.2 * exact.norm()
    assert torch.linalg.matrix_norm(found, 2).max() < 1.25


def test_nothing_is_divided_by_zero() -> None:
    assert not orthogonal(torch.zeros(2, 3, 4)).any()


@pytest.mark.parametrize("gradient", [math.nan, math.inf, 3.0])
def test_a_skipped_step_leaves_weights_mean_and_step(gradient: float) -> None:
    weight = nn.Parameter(torch.randn(2, 4, 6))
    optimizer = muon_of(weight)
    weight.grad = torch.randn_like(weight)
    optimizer.step()
    before = [t.clone() for t in (weight, *optimizer.state[weight].values())]
    weight.grad = torch.full_like(weight, gradient)
    optimizer.found_inf = torch.ones(())  # type: ignore[attr-defined]
    optimizer.step()
    after = (weight, *optimizer.state[weight].values())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    optimizer.found_inf = torch.zeros(())  # type: ignore[attr-defined]
    weight.grad = torch.randn_like(weight)
    optimizer.step()
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_clipped_step_is_that_of_gradients_scaled_before() -> None:
    """The mean of gradients of several steps depends on the scale of each."""
    start = torch.randn(3, 4, 6)
    scaled, plain = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    optimizer, twin = muon_of(scaled), muon_of(plain)
    for scale in (1.0, 5.0, 2.0):
        plain.grad = torch.randn_like(plain)
        scaled.grad = plain.grad * scale
        optimizer.grad_scale = torch.tensor(scale)  # type: ignore[attr-defined]
        optimizer.step()
        twin.step()
    torch.testing.assert_close(scaled, plain, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(optimizer.state[scaled]["exp_avg"], twin.state[plain]["exp_avg"])


def test_steps_are_hooked_once() -> None:
    """Others count them: schedulers, profilers and accelerate."""
    model, calls = tiny_model("lory"), []
    make_optimizer(model, OptimizerConfig())  # torch hooks the steps of every class that was once made
    optimizer = make_optimizer(model, CONFIG)
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    run(model, ids := random_ids(), labels=ids).loss.backward()
    optimizer.step()
    assert len(calls) == 1


ATTENTION = {"llama": {"q_proj", "k_proj", "v_proj", "o_proj"}, "gpt2": {"c_attn", "c_proj"}}
FFN = {"llama": {"gate_proj", "up_proj", "down_proj"}, "gpt2": {"up_proj", "down_proj"}}


@pytest.mark.parametrize(
    ("design", "block"),
    [
        ("dense", "llama"),
        ("lory", "llama"),
        ("mixtral", "normed"),
        ("lory", "gpt2"),
        ("aoe", "llama"),
        ("deepseek-v3", "llama"),
        ("deepseek-v3", "gpt2"),
    ],
)
def test_the_matrices_of_attention_and_ffns_are_muons(design: str, block: str) -> None:
    """Not embeddings, head, norms, biases, routers and the projections by which AoE's experts score."""
    model = tiny_model(design, block=block, num_experts=1 if design == "dense" else 4)
    kind = "gpt2" if block == "gpt2" else "llama"
    ffns = ["mlp.experts", "mlp.shared"] if design == "deepseek-v3" else ["mlp.experts"]
    wanted = {f"self_attn.{name}.weight" for name in ATTENTION[kind]}
    wanted |= {f"{ffn}.{name}" for ffn in ffns for name in FFN[kind]}
    matrices = hidden_matrices(model)
    found = {name for name, parameter in model.named_parameters() if parameter in matrices}
    assert found == {f"model.layers.{i}.{name}" for i in range(2) for name in wanted}


def test_rates_of_matrices_experts_and_routers_multiply() -> None:
    model = tiny_model("mixtral")
    optimizer = make_optimizer(model, CONFIG)
    names = {parameter: name for name, parameter in model.named_parameters()}
    rates = {names[p]: group for group in optimizer.param_groups for p in group["params"]}
    layer = "model.layers.0."
    expected = {
        "lm_head.weight": (1e-2, 0.1),
        f"{layer}input_layernorm.weight": (1e-2, 0.0),
        f"{layer}self_attn.q_proj.weight": (0.5e-2, 0.1),
        f"{layer}mlp.experts.up_proj": (1.5e-2, 0.1),
        f"{layer}mlp.router.scorer.weight": (2e-2, 0.1),
    }
    for name, (rate, decay) in expected.items():
        assert rates[name]["lr"] == pytest.approx(rate), name  # also before a schedule sets it
        assert rates[name]["weight_decay"] == decay
    set_learning_rate(optimizer, 0.5)
    assert all(rates[name]["lr"] == pytest.approx(rate / 2) for name, (rate, _) in expected.items())


def test_a_rate_that_reverses_the_weights_is_refused() -> None:
    with pytest.raises(InputError, match="would reverse the weights"):
        OptimizerConfig(name="muon", learning_rate=0.5, matrix_rate=25.0)
    OptimizerConfig(learning_rate=0.5, matrix_rate=25.0)


def test_what_is_not_a_matrix_takes_adamws_steps() -> None:
    model, twin = tiny_model("mixtral"), tiny_model("mixtral")
    twin.load_state_dict(model.state_dict())
    adamw = replace(CONFIG, name="adamw")
    optimizers = [(model, make_optimizer(model, CONFIG)), (twin, make_optimizer(twin, adamw))]
    ids = random_ids()
    for each, optimizer in optimizers:
        run(each, ids, labels=ids).loss.backward()
        take_step(each, optimizer, 1.0, torch.zeros(()))
    matrices = hidden_matrices(model)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, theirs) == (ours not in matrices)
        assert ("exp_avg_sq" in optimizers[0][1].state[ours]) == (ours not in matrices)
