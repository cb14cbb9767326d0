"""The one place that says how small the tests' models are, and the designs that every grid runs over."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from loriini import DESIGNS, LoriiniConfig, LoriiniForCausalLM, RoutingConfig

VOCABULARY = 61
SEGMENT = 4
LENGTH = 11
"""Not a multiple of SEGMENT: the last segment is short."""

GRID = [name for name, design in DESIGNS.items() if design.scorer != "activation_norm"]
MERGED = [name for name in GRID if DESIGNS[name].combination == "parameters"]
BLOCKS = ["llama", "olmoe", "gpt2"]


def tiny_config(routing: str | RoutingConfig = "lory", **changes: Any) -> LoriiniConfig:
    """Two layers, four experts, segments of four tokens; weights so wide that routing tells tokens apart."""
    design = replace(DESIGNS[routing], segment_length=SEGMENT) if isinstance(routing, str) else routing
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
    """Token ids (B, L); 0 to 2 are left free for BOS, EOS and padding."""
    return torch.randint(3, VOCABULARY, (batch, length))


def label_arguments(model: LoriiniForCausalLM, batch: int) -> dict[str, Tensor]:
    """The labels (B,) that a label-routed model asks for; nothing for another."""
    if model.config.routing.scorer != "label":
        return {}
    return {"routing_labels": torch.arange(batch) % model.config.num_experts}


def run(model: LoriiniForCausalLM, ids: Tensor, **arguments: Any) -> Any:
    """A forward pass with the labels its design asks for and, for a random scorer, always the same draw."""
    model.model.draws.zero_()
    return model(ids, **{**label_arguments(model, len(ids)), **arguments})


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    """Every parameter's gradient; parameters without one are left out."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same_gradients(actual: dict[str, Tensor], expected: dict[str, Tensor], **tolerance: float) -> None:
    """The same parameters got the same gradients."""
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, msg=lambda m, n=name: f"{n}: {m}", **tolerance)
