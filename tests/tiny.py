"""How small the tests' models are, and the designs and blocks that tests run over."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from covering import cover
from loriini import DESIGNS, LoriiniConfig, LoriiniForCausalLM, RoutingConfig

VOCABULARY = 61
SEGMENT = 4
LENGTH = 11
"""Not a multiple of SEGMENT: the last segment is short."""

EVERY = list(DESIGNS)
GRID = [name for name, design in DESIGNS.items() if design.scorer != "activation_norm"]
BLOCKS = ["llama", "normed", "gpt2"]
CLOSE = {"rtol": 1e-4, "atol": 1e-4}

needs_a_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="torch.compile needs a C++ compiler"
)


def over_blocks(cases: Sequence[Any]) -> list[Any]:
    """Parameters (*case, block): each case, a design first, on one block in turn; with `-m grid` on all.

    Designs scored by activations have no gpt2 block: its experts have no gate.
    """
    parameters = []
    for i, case in enumerate(cases):
        name, *rest = (case,) if isinstance(case, str) else case
        blocks = [b for b in BLOCKS if b != "gpt2" or DESIGNS[name].scorer != "activation_norm"]
        for j, block in enumerate(blocks):
            marks = () if j == i % len(blocks) else (pytest.mark.grid,)
            values = (name, *rest, block)
            parameters.append(pytest.param(*values, marks=marks, id="-".join(map(str, values))))
    return parameters


def covering_designs() -> list[str]:
    """Designs that together have every scorer, selection and unit of all designs."""
    axes = ("scorer", "selection", "unit")
    return cover(DESIGNS, lambda name: [(axis, getattr(DESIGNS[name], axis)) for axis in axes])


def tiny_config(routing: str | RoutingConfig = "lory", **changes: Any) -> LoriiniConfig:
    """Two layers, four experts, segments of four tokens; weights so large that tokens differ in routing."""
    design = replace(DESIGNS[routing], segment_length=SEGMENT) if isinstance(routing, str) else routing
    if changes.get("block") == "normed":
        changes |= {"block": "llama", "qk_norm": "all"}
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_experts": 4,
        "initializer_range": 0.3,
    }
    return LoriiniConfig(**{**sizes, **changes}, routing=design)


def tiny_model(routing: str | RoutingConfig = "lory", **changes: Any) -> LoriiniForCausalLM:
    """A model of `tiny_config`, in eval mode."""
    return LoriiniForCausalLM(tiny_config(routing, **changes)).eval()


def random_ids(batch: int = 3, length: int = LENGTH) -> Tensor:
    """Token ids (B, L) from 3; 0 to 2 are BOS, EOS and padding."""
    return torch.randint(3, VOCABULARY, (batch, length))


def label_arguments(model: LoriiniForCausalLM, batch: int) -> dict[str, Tensor]:
    """The labels (B,) that a label-routed model needs; nothing for another."""
    if model.config.routing.scorer != "label":
        return {}
    return {"routing_labels": torch.arange(batch) % model.config.num_experts}


def restart_router_seed(model: LoriiniForCausalLM) -> None:
    """Let a random router draw what it drew first."""
    if model.model.router_seed is not None:
        model.model.router_seed.zero_()


def run(model: LoriiniForCausalLM, ids: Tensor, **arguments: Any) -> Any:
    """A forward pass with the labels its design needs and, for a random scorer, always the same draw."""
    restart_router_seed(model)
    return model(ids, **{**label_arguments(model, len(ids)), **arguments})


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    """The gradient of every parameter that has one."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same_gradients(actual: dict[str, Tensor], expected: dict[str, Tensor], **tolerance: float) -> None:
    """The same parameters got the same gradients."""
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, msg=lambda m, n=name: f"{n}: {m}", **tolerance)
