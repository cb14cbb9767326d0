"""Export of a mixture that is routed once, for example by a prompt, as a dense model of transformers."""

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM

from loriini.common.errors import InputError
from loriini.export.weights import build, shared_settings, swiglu_weights, weights_outside_experts
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.mixture import Mixture

DENSE: Mapping[str, type[PreTrainedModel]] = {
    "llama": LlamaForCausalLM,
    "qwen2": Qwen2ForCausalLM,
    "qwen3": Qwen3ForCausalLM,
}
"""Dense models by format: the last two have biases of queries, keys and values, and norms of heads."""


def not_dense(config: LoriiniConfig) -> str | None:
    """Why no single decision makes the model a dense one of transformers'; None if one does."""
    design = config.design
    if config.block == "gpt2":
        return "block=gpt2 has no gated experts and no rotary positions"
    if design.unit == "token" and not design.constant_gates:
        return "every token chooses its own experts, so they are not one FFN"
    return None


@torch.no_grad()
def prompt_gates(
    model: LoriiniForCausalLM, prompt_BL: Tensor, labels_B: Tensor | None = None
) -> list[Tensor]:
    """Each layer's gates (E,) for a prompt (1, L), as generation routes by it."""
    lengths_B = torch.tensor([prompt_BL.shape[1]])
    routings = model(prompt_BL, prompt_lengths=lengths_B, routing_labels=labels_B).routings
    return [routing.gates[0] for routing in routings]


@torch.no_grad()
def to_dense(model: LoriiniForCausalLM, gates: Sequence[Tensor], name: str = "llama") -> PreTrainedModel:
    """The model `name` of DENSE whose FFNs are the experts combined by `gates`, one (E,) per layer.

    With the gates of a prompt it computes what prompt-routed generation does after that prompt. Experts that
    are combined by their parameters are merged into one (Lory §3.1, inference). Of those combined by their
    outputs the selected ones stand side by side in one wider FFN, as do shared experts, so that it holds k
    experts' weights. Raises InputError for a model that cannot be one.
    """
    if reason := not_dense(model.config):
        raise InputError(reason)
    ffns = [
        combined_ffn(mixture, gates_E) for mixture, gates_E in zip(model.model.mixtures, gates, strict=True)
    ]
    width = max(len(ffn["up_proj"]) for ffn in ffns)  # where layers select different numbers of experts
    weights = weights_outside_experts(model)
    for i, ffn in enumerate(ffns):
        missing = width - len(ffn["up_proj"])
        for part, weight in ffn.items():
            padding = (0, missing) if part == "down_proj" else (0, 0, 0, missing)
            weights[f"model.layers.{i}.mlp.{part}.weight"] = pad(weight, padding)
    settings = {**shared_settings(DENSE[name], model.config), "intermediate_size": width}
    return build(DENSE[name], settings, weights, model.device)


def combined_ffn(mixture: Mixture, gates_E: Tensor) -> dict[str, Tensor]:
    """The FFN of a layer: `gate_proj` and `up_proj` (F', D), `down_proj` (D, F')."""
    experts, like = mixture.experts, cast(Tensor, mixture.experts.down_proj)
    config = mixture.config
    if config.merges or not config.is_mixture:
        gates_1E = gates_E[None].to(like.device) if config.merges else like.new_ones(1, 1)
        parts = [{name: weight[0] for name, weight in swiglu_weights(experts.merge(gates_1E)).items()}]
    else:
        stacked = swiglu_weights(experts.stacked())
        parts = []
        for i in gates_E.nonzero().flatten().tolist() or [0]:  # a layer may select none: one with gate 0
            part = {name: weight[i] for name, weight in stacked.items()}
            parts.append({**part, "down_proj": part["down_proj"] * float(gates_E[i])})
    if mixture.shared is not None:
        shared = swiglu_weights(mixture.shared.stacked())
        parts.append({name: weight[0] for name, weight in shared.items()})
    return {
        "gate_proj": torch.cat([part["gate_proj"] for part in parts]),
        "up_proj": torch.cat([part["up_proj"] for part in parts]),
        "down_proj": torch.cat([part["down_proj"] for part in parts], dim=1),
    }
