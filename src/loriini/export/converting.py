"""Conversion of a model to each export format, and the routing decision for formats without a router."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from loriini.common.errors import InputError
from loriini.export.gguf_file import not_gguf
from loriini.export.merged import DENSE, prompt_gates, to_dense
from loriini.export.served import SERVED, to_served
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.generate.routing_inputs import labels_of, refuse_unused_label
from loriini.model.weights.loading import check_ids, opening_ids, prompt_ids


@dataclass(frozen=True)
class RoutedBy:
    """What routes a model once, for the formats that have no router."""

    prompt_BL: Tensor | None = None
    labels_B: Tensor | None = None


Convert = Callable[[LoriiniForCausalLM, RoutedBy], PreTrainedModel]


def as_dense(name: str, model: LoriiniForCausalLM, routed_by: RoutedBy) -> PreTrainedModel:
    """The model `name` of DENSE, of the experts that a prompt or a label chooses."""
    config = model.config
    if model.device.type == "meta":  # any experts do, to see whether the shapes fit
        return to_dense(model, [torch.eye(config.num_experts)[0]] * config.num_hidden_layers, name)
    ids_BL = torch.zeros(1, 1, dtype=torch.long) if routed_by.prompt_BL is None else routed_by.prompt_BL
    return to_dense(model, prompt_gates(model, ids_BL.to(model.device), routed_by.labels_B), name)


def as_served(name: str, model: LoriiniForCausalLM, routed_by: RoutedBy) -> PreTrainedModel:
    """The mixture `name` of SERVED."""
    return to_served(model, name)


def for_gguf(model: LoriiniForCausalLM, routed_by: RoutedBy) -> PreTrainedModel:
    """The first of the other formats that llama.cpp has; InputError with the reason of the nearest one."""
    routed = model.config.design.unit == "token"
    reasons, nearest = [], None
    for name in SERVED if routed else DENSE:
        try:
            converted = CONVERTERS[name](model, routed_by)
        except InputError as error:
            reasons.append(str(error))
            continue
        nearest = not_gguf(converted.config)
        if nearest is None:
            return converted
    raise InputError(nearest or reasons[0])


CONVERTERS: dict[str, Convert] = {
    "hf": lambda model, routed_by: model,
    **{name: partial(as_dense, name) for name in DENSE},
    **{name: partial(as_served, name) for name in SERVED},
    "gguf": for_gguf,
}
"""A function for each of FORMATS."""


def formats_of(config: LoriiniConfig) -> list[str]:
    """The formats that a model of this configuration can be exported to."""
    with torch.device("meta"):
        model = LoriiniForCausalLM(config)
    found = []
    for name, converter in CONVERTERS.items():
        try:
            converter(model, RoutedBy())
        except InputError:
            continue
        found.append(name)
    return found


def convert(model: LoriiniForCausalLM, to: str, routed_by: RoutedBy) -> PreTrainedModel:
    """The model in a format; InputError with the reason and the formats that would do."""
    try:
        return CONVERTERS[to](model, routed_by)
    except InputError as error:
        others = " or ".join(formats_of(model.config))
        raise InputError(f"this model cannot be exported as {to}: {error}; use --to {others}") from None


def decide(
    model: LoriiniForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str | None,
    label: str | None,
) -> RoutedBy:
    """The decision of a prompt and a label. InputError where one is missing, too long or without effect."""
    config = model.config
    refuse_unused_label(label, config)
    labels_B = labels_of(model, label, 1)
    if not config.design.data_dependent:
        if prompt:
            raise InputError("--prompt: this model's experts do not depend on a prompt; leave it out")
        return RoutedBy(None, labels_B)
    ids = prompt_ids(tokenizer, prompt or "")
    if len(ids) == len(opening_ids(tokenizer)):
        what = "a prompt" if prompt is None else "the prompt is empty, but it"
        raise InputError(f"{what} chooses the experts of this model; give --prompt TEXT or --prompt-file F")
    if len(ids) > config.max_position_embeddings:
        raise InputError(
            f"the prompt has {len(ids)} tokens and the model's context {config.max_position_embeddings}; "
            "shorten it"
        )
    ids_BL = torch.tensor([ids], device=model.device)
    check_ids(ids_BL, model)
    return RoutedBy(ids_BL, labels_B)
