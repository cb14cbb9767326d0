"""Inputs that route a sequence besides its tokens: its domain's label, or the seed of a random router."""

from typing import Any

import torch
from torch import Tensor

from loriini.common.errors import InputError
from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM


def labels_of(model: LoriiniForCausalLM, domain: str | None, batch: int) -> Tensor | None:
    """`routing_labels` (B,) for `batch` sequences of one domain; None for a model not routed by label.

    InputError for a domain without a label in the model, and if `domain` is None but needed.
    """
    if not model.config.routed_by_label:
        return None
    names = model.config.label_names or []
    if domain not in names:
        missing = "this model routes by label; give one (--label)"
        wrong = missing if domain is None else f"no label is named {domain!r}"
        raise InputError(f"{wrong}; the model's labels are: {', '.join(names) or 'not in its config'}")
    return torch.full((batch,), names.index(domain), device=model.device)


def routing_inputs(
    model: LoriiniForCausalLM, domain: str | None, batch: int, first: int = 0
) -> dict[str, Any]:
    """The model's arguments, besides the tokens, that route `batch` sequences of held-out text.

    They are labels of their domain and, for a random router, which training redraws every step, one seed per
    sequence, numbered from `first` + 1.
    """
    inputs: dict[str, Any] = {"routing_labels": labels_of(model, domain, batch)}
    if model.config.design.scorer == "random":
        inputs["router_seeds"] = torch.arange(first + 1, first + 1 + batch, device=model.device)
    return inputs


def prompt_routing(model: LoriiniForCausalLM, routing: str, lengths_B: Tensor) -> dict[str, Any]:
    """The model's arguments that route by prompts of `lengths_B` tokens; none if `routing` is `training`."""
    if routing == "training":
        return {}
    return {"prompt_lengths": lengths_B.to(model.device), "inference_routing": routing}


def refuse_unused_label(label: str | None, *configs: LoriiniConfig) -> None:
    """InputError for a `--label` if none of the models routes by label."""
    if label is not None and not any(config.routed_by_label for config in configs):
        which = "this model does" if len(configs) == 1 else "these models do"
        raise InputError(f"--label {label}: {which} not route by label; leave it out")
