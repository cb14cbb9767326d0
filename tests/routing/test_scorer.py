from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch.nn.functional import gelu

from loriini import DESIGNS, LoriiniForCausalLM, RoutingConfig
from loriini.routing.scorer import (
    SCORERS,
    ActivationNormScorer,
    EuclideanNorm,
    LabelScorer,
    RouterSettings,
    ScorerModule,
    standard_normal,
)
from loriini.routing.unit import RoutingContext
from tiny import random_ids, tiny_model

D, E = 8, 4
OF_STATES = [name for name in SCORERS if name != "activation_norm"]
STATES_PER_UNIT = {"linear_segment": 2}
CONTEXT = RoutingContext(2, 3, labels_B=torch.tensor([0, E - 1]))


def settings(scorer: str) -> RouterSettings:
    return RouterSettings(RoutingConfig("token", combination="outputs", scorer=scorer), D, E)


def initialized(kind: str, dtype: torch.dtype = torch.float32) -> ScorerModule:
    scorer = SCORERS[kind](settings(kind)).to(dtype)
    for weight in scorer.parameters():
        torch.nn.init.normal_(weight)
    return scorer


@pytest.mark.parametrize("kind", OF_STATES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_float32_also_under_autocast(kind: str, dtype: torch.dtype) -> None:
    scorer = initialized(kind, dtype)
    h_BUD = torch.randn(2, 3, STATES_PER_UNIT.get(kind, 1) * D, dtype=dtype)
    plain = scorer(h_BUD, CONTEXT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = scorer(h_BUD, CONTEXT)
    assert plain.dtype == torch.float32
    assert plain.shape == (2, 3, E)
    assert torch.equal(plain, cast)


def test_linear_and_mlp_by_hand() -> None:
    h_BUD = torch.randn(2, 3, D)
    linear, mlp = initialized("linear"), initialized("mlp")
    expected = torch.einsum("bud,ed->bue", h_BUD, linear.weight)
    torch.testing.assert_close(linear(h_BUD, CONTEXT), expected)
    hidden = gelu(torch.einsum("bud,hd->buh", h_BUD, mlp.hidden))
    torch.testing.assert_close(mlp(h_BUD, CONTEXT), torch.einsum("buh,eh->bue", hidden, mlp.weight))


def drawn(model: torch.nn.Module) -> list[torch.Tensor]:
    """The weights (E, D) that a random model's routers score by: their logits of unit vectors."""
    seen: list[torch.Tensor] = []
    eye = torch.eye(model.config.hidden_size)[None]
    handles = [
        mixture.router.scorer.register_forward_hook(
            lambda scorer, inputs, _: seen.append(scorer.__class__.forward(scorer, eye, inputs[1])[0].T)
        )
        for mixture in model.model.mixtures
    ]
    model(random_ids())
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.parametrize("std", [0.02, 0.3])
def test_random_routers_are_drawn_from_the_distribution_of_frozen_ones(std: float) -> None:
    sizes = {"hidden_size": 64, "num_experts": 64, "initializer_range": std}
    frozen = tiny_model("frozen", **sizes).model.mixtures[0].router.scorer.weight
    model = tiny_model("random", **sizes).train()
    model.model.begin_step()
    for weights_ED in drawn(model):
        assert weights_ED.std().item() == pytest.approx(std, rel=0.05)
        assert weights_ED.std().item() == pytest.approx(frozen.std().item(), rel=0.05)
        assert abs(weights_ED.mean().item()) < 0.05 * std


def test_random_routers_are_drawn_once_a_step_and_differ_between_layers() -> None:
    model = tiny_model("random").train()
    model.model.begin_step()
    first, same_step = drawn(model), drawn(model)
    model.model.begin_step()
    second = drawn(model)
    assert all(map(torch.equal, first, same_step))
    assert not any(map(torch.equal, first, second))
    assert not torch.equal(*first)


def test_random_routers_of_other_seeds_and_of_evaluation_are_others() -> None:
    model = tiny_model("random").train()
    draws = []
    for seed in (0, 1, (1 << 30) - 1):
        model.model.set_router_seed(seed)
        model.model.begin_step()
        draws.append(int(model.model.router_seed))
    numbers = {
        standard_normal(torch.tensor(draw), torch.tensor(layer), 2, 3).numpy().tobytes()
        for draw in (*draws, draws[0] + (1 << 16), 1, 2)
        for layer in range(2)
    }
    assert len(numbers) == 12


@torch.no_grad()
def test_sequences_are_routed_by_draws_of_their_own() -> None:
    model, ids = tiny_model("random"), random_ids(3, 12)
    out = model(ids, router_seeds=torch.tensor([5, 0, 7]))
    for row, draw in enumerate((5, 0, 7)):
        alone = model(ids[row : row + 1], router_seeds=torch.tensor([draw]))
        torch.testing.assert_close(out.logits[row], alone.logits[0])
    torch.testing.assert_close(out.logits[1], model(ids).logits[1])
    assert not torch.allclose(out.logits[0], model(ids).logits[0])


def test_a_loaded_frozen_scorer_stays_frozen(tmp_path: Path) -> None:
    """Loading puts a trainable weight in place of each."""
    tiny_model("frozen").save_pretrained(tmp_path)
    scorer = LoriiniForCausalLM.from_pretrained(tmp_path).model.layers[0].mlp.router.scorer
    assert not scorer.weight.requires_grad  # or data-parallel wrappers would wait for its gradient


def test_label_scorer_gives_each_label_its_expert_alone() -> None:
    context = RoutingContext(2, 3, labels_B=torch.tensor([2, 0]))
    probabilities = LabelScorer(settings("label"))(torch.randn(2, 3, D), context).softmax(-1)
    assert torch.equal(probabilities, torch.eye(E)[[2, 0]][:, None].expand(-1, 3, -1))


def test_label_scorer_reads_no_label() -> None:
    """Tensors on the meta device hold no values; reading some of a GPU would wait for it."""
    h_BUD, labels_B = torch.empty(2, 3, D, device="meta"), torch.empty(2, dtype=torch.long, device="meta")
    assert LabelScorer(settings("label"))(h_BUD, RoutingContext(2, 3, labels_B=labels_B)).shape == (2, 3, E)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_euclidean_norm_equals_its_twin(dtype: torch.dtype) -> None:
    a = torch.randn(5, 4, 8).to(dtype)
    a[2, 1] = 0  # no direction: its gradient is 0
    fast, naive = (a.clone().requires_grad_() for _ in range(2))
    norms, wanted = EuclideanNorm.apply(fast), torch.linalg.vector_norm(naive.float(), dim=-1)
    assert norms.dtype == torch.float32
    torch.testing.assert_close(norms, wanted)
    probe = torch.randn(5, 4)
    (norms * probe).sum().backward()
    (wanted * probe).sum().backward()
    torch.testing.assert_close(fast.grad, naive.grad)
    assert not fast.grad[2, 1].any()


@pytest.mark.parametrize("norm", [1, 2, "inf"])
def test_activations_are_scored_by_their_norm_with_gradients(norm: Literal[1, 2, "inf"]) -> None:
    scorer = ActivationNormScorer(RouterSettings(replace(DESIGNS["aoe"], norm=norm), 16, 4))
    found, naive = (torch.randn(2, 3, 4, 8).requires_grad_() for _ in range(2))
    naive.data.copy_(found.data)
    sizes = naive.abs()
    wanted = {1: sizes.sum(-1), 2: sizes.square().sum(-1).sqrt(), "inf": sizes.amax(-1)}[norm]
    norms, probe = scorer(found, CONTEXT), torch.randn(2, 3, 4)
    torch.testing.assert_close(norms, wanted)
    (norms * probe).sum().backward()
    (wanted * probe).sum().backward()
    torch.testing.assert_close(found.grad, naive.grad)


def test_norms_keep_no_float32_copy_of_activations() -> None:
    scorer = ActivationNormScorer(RouterSettings(DESIGNS["aoe"], 16, 4))
    a, kept = torch.randn(2, 3, 4, 8, dtype=torch.bfloat16, requires_grad=True), []
    with (
        torch.autocast("cpu", torch.bfloat16),
        torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t),
    ):
        scorer(a, RoutingContext(2, 3))
    assert {t.dtype for t in kept if t.shape == a.shape} == {torch.bfloat16}
