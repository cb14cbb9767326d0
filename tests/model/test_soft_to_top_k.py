"""A soft mixture becomes a top-k one with the same weights."""

from dataclasses import replace

import pytest
import torch

from loriini import DESIGNS
from loriini.model.weights.conversion import soft_to_top_k
from loriini.train.optimizer import OptimizerConfig, make_optimizer
from tiny import SEGMENT, random_ids, tiny_model

SOFT = ["lory", "prefix", "smear"]


@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_all_experts_are_the_soft_mixture(name: str, training: bool) -> None:
    model, ids = tiny_model(name).train(training), random_ids()
    everyone = soft_to_top_k(model, 4)
    assert everyone.training == training
    torch.testing.assert_close(everyone(ids).logits, model(ids).logits)


@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_units_keep_their_k_likeliest_experts(name: str, k: int) -> None:
    model, ids = tiny_model(name), random_ids()
    sparse = soft_to_top_k(model, k)
    assert sparse.config.routing == replace(
        model.config.routing, selection="top_k", top_k=k, gates="softmax_selected"
    )
    soft, gates = model(ids).routings[0].gates, sparse(ids).routings[0].gates
    kept = soft * torch.zeros_like(soft).scatter(1, soft.topk(k).indices, 1.0)
    torch.testing.assert_close(gates, kept / kept.sum(-1, keepdim=True))
    assert all(torch.equal(a, b) for a, b in zip(sparse.parameters(), model.parameters(), strict=True))


def test_narrowing_lory_gives_a_row_of_the_space() -> None:
    lory_top2 = replace(DESIGNS["lory-top2"], segment_length=SEGMENT)
    assert soft_to_top_k(tiny_model("lory"), 2).config.routing == lory_top2


def test_training_continues_while_it_narrows() -> None:
    model, ids = tiny_model("lory").train(), random_ids()
    losses = []
    for k in (4, 3, 2):
        model = soft_to_top_k(model, k)
        optimizer = make_optimizer(model, OptimizerConfig(learning_rate=1e-2))
        for _ in range(5):
            loss = model(ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_a_mixture_of_outputs_is_narrowed_again_to_one_of_outputs() -> None:
    sparse, ids = soft_to_top_k(tiny_model("lory"), 3, "outputs"), random_ids()
    again = soft_to_top_k(sparse, 3)
    assert again.config.routing == sparse.config.routing
    torch.testing.assert_close(again(ids).logits, sparse(ids).logits)
    assert soft_to_top_k(sparse, 3, "parameters").config.merges


def test_the_soft_model_is_left_alone() -> None:
    model, ids = tiny_model("lory"), random_ids()
    before = model(ids).logits
    for parameter in soft_to_top_k(model, 2).parameters():
        torch.nn.init.zeros_(parameter)
    assert torch.equal(model(ids).logits, before)


@pytest.mark.parametrize("name", ["mixtral", "ec-segment", "dense"])
def test_other_designs_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="only a soft mixture of parameters becomes a top-k one"):
        soft_to_top_k(tiny_model(name), 2)


@pytest.mark.parametrize(("k", "reason"), [(0, "top_k is 0"), (5, "top_k is 5; it must be at most")])
def test_a_k_out_of_range_is_refused(k: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        soft_to_top_k(tiny_model("lory"), k)
