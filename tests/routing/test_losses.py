import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from loriini import DESIGNS, Routing
from loriini.routing import losses
from loriini.routing.design import Scorer
from loriini.routing.selection import GATES, SELECTIONS
from tiny import gradients, random_ids, tiny_model

MIXTRAL = DESIGNS["mixtral"]


def routing_of(logits: Tensor, k: int = 2, valid: Tensor | None = None) -> Routing:
    mask = SELECTIONS["top_k"](logits, replace(MIXTRAL, top_k=k), valid, True)
    return Routing(logits, GATES["softmax_selected"](logits, mask, MIXTRAL), (1, len(logits)), valid)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_load_balance_is_transformers_for_one_layer(k: int) -> None:
    logits = torch.randn(50, 6)
    expected = load_balancing_loss_func((logits,), num_experts=6, top_k=k)
    torch.testing.assert_close(losses.load_balance(routing_of(logits, k)), expected)


def test_confidence_entropy_and_z_by_hand() -> None:
    routing = routing_of(torch.tensor([[0.0, 0.0, 0.0, 0.0], [math.log(2.0), 0.0, 0.0, -math.inf]]))
    routing = replace(routing, logits=routing.logits.clamp(min=-80.0))
    entropy = (math.log(4) + (0.5 * math.log(2) + 2 * 0.25 * math.log(4))) / 2
    assert losses.confidence_entropy(routing).item() == pytest.approx(entropy)
    assert losses.router_z(routing).item() == pytest.approx((math.log(4) ** 2 + math.log(4) ** 2) / 2)


def test_gate_l1_by_hand() -> None:
    gates = torch.tensor([[0.5, 0.0, 2.0], [0.0, 0.0, 0.0]])
    assert losses.gate_l1(Routing(torch.zeros(2, 3), gates, (1, 2))).item() == pytest.approx(1.25)


@pytest.mark.parametrize("scorer", ["frozen", "random"])
def test_states_learn_from_the_losses_of_routers_that_do_not(scorer: Scorer) -> None:
    """So a design with such a router may have them; the embeddings are below every router."""
    design = replace(DESIGNS[scorer], load_balance=1.0, router_z=1.0)
    model, ids = tiny_model(design).train(), random_ids()
    model(ids, labels=ids).auxiliary_loss.backward()
    assert model.get_input_embeddings().weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", losses.LOSSES)
def test_padding_is_left_out(name: str) -> None:
    logits, valid = torch.randn(6, 4), torch.tensor([True, False, True, True, False, True])
    padded = losses.LOSSES[name](routing_of(logits, valid=valid))
    torch.testing.assert_close(padded, losses.LOSSES[name](routing_of(logits[valid])))


def test_averaged_shares_make_load_balance_that_of_all_processes() -> None:
    """Those with few units, as where documents are units, weigh less than those with many."""
    shards = [torch.randn(units, 4) for units in (2, 11, 0)]
    counted: list[Tensor] = []
    for logits in shards:
        losses.load_balance(routing_of(logits), lambda own: counted.append(own) or own)
    mean = torch.stack(counted).mean(0)
    weighted = [
        len(logits) / 13 * losses.load_balance(routing_of(logits), lambda _: mean) for logits in shards
    ]
    torch.testing.assert_close(sum(weighted), losses.load_balance(routing_of(torch.cat(shards))))


def test_auxiliary_loss_weighs_and_averages_over_layers() -> None:
    layers = (routing_of(torch.randn(9, 4)), routing_of(torch.randn(9, 4)))
    design = replace(MIXTRAL, load_balance=0.5, confidence_entropy=0.25, router_z=0.125)
    expected = sum(
        0.5 * losses.load_balance(r) + 0.25 * losses.confidence_entropy(r) + 0.125 * losses.router_z(r)
        for r in layers
    )
    torch.testing.assert_close(losses.auxiliary_loss(layers, design), expected / 2)
    assert losses.auxiliary_loss(layers, DESIGNS["lory"]) is None


def test_auxiliary_loss_is_added_in_training_only() -> None:
    model, ids = tiny_model(replace(MIXTRAL, load_balance=0.5)), random_ids()
    evaluated, trained = model.eval()(ids, labels=ids), model.train()(ids, labels=ids)
    torch.testing.assert_close(trained.loss, evaluated.loss + 0.5 * mean_load_balance(trained.routings))
    torch.testing.assert_close(trained.auxiliary_loss, evaluated.auxiliary_loss)
    assert torch.equal(trained.cross_entropy, evaluated.loss)
    assert torch.equal(evaluated.cross_entropy, evaluated.loss)


def test_without_labels_training_returns_it_alone() -> None:
    """For trainers that compute the loss from the logits."""
    model, ids = tiny_model("mixtral"), random_ids()
    out = model.train()(ids)
    assert out.loss is None
    torch.testing.assert_close(out.auxiliary_loss, model(ids, labels=ids).auxiliary_loss)
    assert model.eval()(ids).auxiliary_loss is None


@pytest.mark.parametrize("name", ["mixtral", "token-top-p", "relu"])
def test_a_batch_of_padding_alone_has_no_loss_and_no_gradient(name: str) -> None:
    model, ids = tiny_model(replace(DESIGNS[name], router_z=0.1)).train(), random_ids(2)
    labels = torch.full_like(ids, -100)
    out = model(ids, attention_mask=torch.zeros_like(ids), labels=labels)
    out.loss.backward()
    assert out.loss.item() == 0
    assert not any(gradient.any() for gradient in gradients(model).values())


def mean_load_balance(routings: tuple[Routing, ...]) -> Tensor:
    return torch.stack([losses.load_balance(r) for r in routings]).mean()
