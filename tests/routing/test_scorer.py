import pytest
import torch
from torch.nn.functional import gelu

from loriini import RoutingConfig
from loriini.routing.scorer import MLP, Frozen, Label, Linear, Random, make_scorer
from loriini.train.optimizer import OptimizerConfig, make_optimizer
from tiny import random_ids, tiny_model

D, E = 8, 4
OF_STATES = ["linear", "linear_segment", "mlp", "frozen", "random", "label"]
SOURCE_WIDTHS = {"linear_segment": 2 * D}
"""Of the scorers that take more than the mean of a unit."""


def initialized(kind: str, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    scorer = make_scorer(RoutingConfig("token", combination="outputs", scorer=kind), D, E, layer=0).to(dtype)
    for weight in scorer.parameters():
        torch.nn.init.normal_(weight)
    return scorer


@pytest.mark.parametrize("kind", OF_STATES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_float32_also_under_autocast(kind: str, dtype: torch.dtype) -> None:
    scorer, h_BUD = initialized(kind, dtype), torch.randn(2, 3, SOURCE_WIDTHS.get(kind, D), dtype=dtype)
    labels_B = torch.tensor([0, E - 1])
    plain = scorer(h_BUD, labels_B, 0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = scorer(h_BUD, labels_B, 0)
    assert plain.dtype == torch.float32
    assert plain.shape == (2, 3, E)
    assert torch.equal(plain, cast)


def test_linear_and_mlp_compute_what_they_say() -> None:
    h_BUD = torch.randn(2, 3, D)
    linear, mlp = initialized("linear"), initialized("mlp")
    assert isinstance(linear, Linear)
    assert isinstance(mlp, MLP)
    torch.testing.assert_close(linear(h_BUD, None, 0), torch.einsum("bud,ed->bue", h_BUD, linear.weight))
    hidden = gelu(torch.einsum("bud,hd->buh", h_BUD, mlp.hidden))
    torch.testing.assert_close(mlp(h_BUD, None, 0), torch.einsum("buh,eh->bue", hidden, mlp.weight))


def test_random_scorer_is_a_function_of_its_draw() -> None:
    scorer, h_BUD = Random(D, E, layer=0), torch.randn(2, 3, D)
    torch.randn(7)
    assert torch.equal(scorer(h_BUD, None, 5), scorer(h_BUD, None, 5))
    assert not torch.equal(scorer(h_BUD, None, 5), scorer(h_BUD, None, 6))


def test_random_scorer_draws_anew_in_training_and_resumes_through_the_state() -> None:
    model, ids = tiny_model("random").train(), random_ids()

    def gates(m: torch.nn.Module) -> torch.Tensor:
        return m(ids).routings[0].gates

    first, second = gates(model), gates(model)
    assert not torch.equal(first, second)
    resumed = tiny_model("random").train()
    resumed.load_state_dict(model.state_dict())
    assert torch.equal(gates(resumed), gates(model))


def test_random_scorer_is_fixed_at_evaluation() -> None:
    model, ids = tiny_model("random"), random_ids()
    before = model(ids).logits
    model.train()(ids)
    draws = model.model.draws.clone()
    assert torch.equal(model.eval()(ids).logits, before)
    assert torch.equal(model.model.draws, draws)


def test_frozen_scorer_is_left_alone_by_the_optimizer() -> None:
    model, ids = tiny_model("frozen").train(), random_ids()
    scorer = model.model.layers[0].mlp.router.scorer
    assert isinstance(scorer, Frozen)
    before, experts_before = scorer.weight.clone(), model.model.layers[0].mlp.experts.down_proj.clone()
    optimizer = make_optimizer(model, OptimizerConfig(learning_rate=0.1))
    model(ids, labels=ids).loss.backward()
    optimizer.step()
    assert torch.equal(scorer.weight, before)
    assert not torch.equal(model.model.layers[0].mlp.experts.down_proj, experts_before)


def test_label_scorer_gives_each_label_its_expert_alone() -> None:
    labels_B = torch.tensor([2, 0])
    probabilities = Label(D, E)(torch.randn(2, 3, D), labels_B, 0).softmax(-1)
    assert torch.equal(probabilities, torch.eye(E)[labels_B][:, None].expand(-1, 3, -1))


def test_label_scorer_refuses_missing_and_unknown_labels() -> None:
    scorer, h_BUD = Label(D, E), torch.randn(2, 1, D)
    with pytest.raises(ValueError, match="needs routing_labels"):
        scorer(h_BUD, None, 0)
    with pytest.raises(ValueError, match=r"routing_labels are 0\.\.4; with 4 experts they are 0\.\.3"):
        scorer(h_BUD, torch.tensor([0, E]), 0)
    with pytest.raises(ValueError, match=r"routing_labels are -1\.\.0"):
        scorer(h_BUD, torch.tensor([0, -1]), 0)
