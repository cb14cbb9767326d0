"""The null experiment: experts that are equal and weigh the same are the dense model, step for step.

Lory's warm-up copies a dense FFN into E experts. With gates of 1/E each copy gets 1/E of the gradient; with
Adam's moments carried over as m/E, v/E² and an eps of eps/E it takes the dense model's step.
"""

from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor

from covering import one_of_each
from loriini import LoriiniForCausalLM, RoutingConfig
from loriini.train import muon
from loriini.train.optimizer import OptimizerConfig, make_optimizer
from loriini.train.upcycle import upcycle
from tiny import LENGTH, SEGMENT, VOCABULARY, tiny_config, tiny_model

BEFORE, AFTER = 10, 20
EQUAL_GATES = RoutingConfig(segment_length=SEGMENT, gates="uniform")
OPTIMIZER = OptimizerConfig(learning_rate=3e-3)


@pytest.fixture(autouse=True)
def muon_rounds_as_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon, "iteration_dtype", lambda x: x.dtype)


def batch(step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randint(VOCABULARY, (8, LENGTH + 1), generator=generator)


def train(model: LoriiniForCausalLM, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    """The losses of the steps; nothing is clipped, since E gradients of 1/E have another norm than one."""
    losses = []
    for step in steps:
        ids = batch(step)
        loss = model.train()(ids[:, :-1], shift_labels=ids[:, 1:]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def trained_dense(
    settings: OptimizerConfig, block: str = "llama"
) -> tuple[LoriiniForCausalLM, torch.optim.AdamW]:
    dense = tiny_model("dense", num_experts=1, initializer_range=0.05, block=block).double()
    optimizer = make_optimizer(dense, settings)
    train(dense, optimizer, range(BEFORE))
    return dense, optimizer


def apart_after(
    experts: int = 4, eps: float = 1e-8, name: Literal["adamw", "muon"] = "adamw", block: str = "llama"
) -> tuple[float, float]:
    """Train a dense model, then it and its copy on; how far losses and merged weights come apart, at most."""
    settings = replace(OPTIMIZER, eps=eps, name=name)
    dense, dense_optimizer = trained_dense(settings, block)
    config = tiny_config(EQUAL_GATES, num_experts=experts, block=block)
    mixture, optimizer = upcycle(dense, dense_optimizer, config, settings)
    steps = range(BEFORE, BEFORE + AFTER)
    losses = zip(train(dense, dense_optimizer, steps), train(mixture, optimizer, steps), strict=True)
    merged = {
        name: weight.mean(0, keepdim=True) if ".experts." in name else weight
        for name, weight in mixture.named_parameters()
    }
    weights = [(merged[name] - weight).abs().max().item() for name, weight in dense.named_parameters()]
    return max(abs(a - b) for a, b in losses), max(weights)


@one_of_each(experts=[3, 8], eps=[1e-8, 1e-3], name=["adamw", "adamw", "muon"], block=["llama", "gpt2"])
def test_copies_of_equal_weight_follow_the_dense_model(
    experts: int, eps: float, name: Literal["adamw", "muon"], block: str
) -> None:
    losses, weights = apart_after(experts=experts, eps=eps, name=name, block=block)
    assert losses < 1e-5
    assert weights < 1e-5


def test_routing_weights_alone_break_the_symmetry() -> None:
    dense, dense_optimizer = trained_dense(OPTIMIZER)
    mixture, optimizer = upcycle(dense, dense_optimizer, tiny_config("lory"), OPTIMIZER)
    ids = batch(0)
    torch.testing.assert_close(mixture(ids).logits, dense(ids).logits, rtol=1e-5, atol=1e-5)
    train(mixture, optimizer, range(BEFORE, BEFORE + 3))
    experts = mixture.model.layers[0].mlp.experts.down_proj
    assert (experts[0] - experts[1]).abs().max() > 1e-5
