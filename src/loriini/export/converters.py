"""Our models as models of transformers: a Llama of experts that are chosen once, and sparse mixtures.

A model qualifies by what it computes in evaluation, not by its design's name. The reverse of
`model.weights.pretrained`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import (
    LlamaForCausalLM,
    MixtralForCausalLM,
    OlmoeForCausalLM,
    PhimoeForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from loriini.common.checks import refuse_first
from loriini.common.errors import InputError
from loriini.export.gguf_file import not_gguf
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.generate.prompts import check_ids, opening_ids, prompt_ids
from loriini.model.generate.routing_inputs import labels_of, refuse_unused_label
from loriini.model.mixture import Mixture, names_within
from loriini.routing import RoutingConfig
from loriini.routing.scorer import RandomScorer, standard_normal
from loriini.routing.selection import fixed_counts


@dataclass(frozen=True)
class RoutedBy:
    """The prompt (1, L) or the label (1,) that routes a model once, for formats that have no router."""

    prompt_BL: Tensor | None = None
    labels_B: Tensor | None = None


@dataclass(frozen=True)
class Served:
    """A mixture architecture of transformers."""

    model: type[PreTrainedModel]
    title: str
    gates: Mapping[str, Mapping[str, Any]]
    """The gates it can have, by our names, and its settings for each."""
    router: str = "gate"
    """The name of its routers."""
    experts: str = "num_local_experts"
    """The name of its setting of the number of experts."""
    gates_if_all_selected: str = "softmax_selected"
    """The gates it is given if all experts are selected, when both softmaxes are the same: those that other
    programs compute."""


SERVED = {
    "mixtral": Served(MixtralForCausalLM, "Mixtral", {"softmax_selected": {}}),
    "olmoe": Served(
        OlmoeForCausalLM,
        "OLMoE",
        {"softmax_all": {"norm_topk_prob": False}, "softmax_selected": {"norm_topk_prob": True}},
        experts="num_experts",
        gates_if_all_selected="softmax_all",
    ),
    "phimoe": Served(PhimoeForCausalLM, "Phi-3.5-MoE", {"sparse_mixer": {}}, router="router"),
}


def not_dense(config: LoriiniConfig) -> str | None:
    """Why one routing decision does not make the model a dense one of transformers; None if it does."""
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
def to_dense(model: LoriiniForCausalLM, gates: Sequence[Tensor]) -> PreTrainedModel:
    """A Llama whose FFNs are the experts combined by `gates`, one (E,) per layer.

    With the gates of a prompt it computes what prompt-routed generation does after that prompt. Experts that
    are combined by their parameters are merged into one (Lory §3.1, inference). If experts are combined by
    their outputs, the k selected ones and the shared ones stand side by side in one wider FFN. Raises
    InputError for a model that cannot be one.
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
    settings = {**shared_settings(LlamaForCausalLM, model.config), "intermediate_size": width}
    return build(LlamaForCausalLM, settings, weights, model.device)


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


@torch.no_grad()
def to_served(name: str, model: LoriiniForCausalLM, routed_by: RoutedBy) -> PreTrainedModel:
    """The model as the architecture `name` of SERVED, with the same logits.

    Weights other than the experts' gate and up are shared, not copied. InputError with the reason for a
    model that computes another function.
    """
    kind, config = SERVED[name], model.config
    k, gates = top_k_of_tokens(config)
    if k == config.num_experts and gates == "softmax_selected":
        gates = kind.gates_if_all_selected
    if gates not in kind.gates:
        raise InputError(f"its gates are {gates}, and {kind.title} has {' or '.join(kind.gates)}")
    if config.num_shared_experts:
        raise InputError(f"it has shared experts, and {kind.title} has none")
    if name == "phimoe" and k != 2:
        raise InputError(f"its top k is {k}, and {kind.title}'s is 2")
    settings = {
        **shared_settings(kind.model, config),
        **kind.gates[gates],
        kind.experts: config.num_experts,
        "intermediate_size": config.expert_width,
        "num_experts_per_tok": k,
        "router_aux_loss_coef": config.routing.load_balance,
    }
    weights = weights_outside_experts(model)
    for layer, mixture in enumerate(model.model.mixtures):
        prefix = f"model.layers.{layer}.mlp"
        experts = swiglu_weights(mixture.experts.stacked())
        weights[f"{prefix}.{kind.router}.weight"] = router_weight(mixture)
        weights[f"{prefix}.experts.gate_up_proj"] = torch.cat([experts["gate_proj"], experts["up_proj"]], 1)
        weights[f"{prefix}.experts.down_proj"] = experts["down_proj"]
    if name == "phimoe":
        settings |= {"router_jitter_noise": config.routing.jitter, "lm_head_bias": True}
        head = weights["lm_head.weight"]
        weights.setdefault("lm_head.bias", head.new_zeros(len(head)))  # vLLM's class always has one
    return build(kind.model, settings, weights, model.device)


def top_k_of_tokens(config: LoriiniConfig) -> tuple[int, str]:
    """k and the gates of a model that routes every token to its top k by a linear router, in evaluation.

    Gates that are the same function at this k have one name. InputError with the reason for any other model.
    """
    refuse_first(_not_top_k_of_tokens(config))
    r = config.routing
    k = fixed_counts(r, 1, config.num_experts, training=False, padded=False).per_unit
    assert k is not None
    return k, equal_gates(r, k, config.num_experts)


def _not_top_k_of_tokens(config: LoriiniConfig) -> Iterator[str]:
    """Why a model does not route every token to its top k by a linear router, in evaluation."""
    r = config.routing
    if not config.is_mixture:
        yield "it is dense"
    if config.block == "gpt2":
        yield "block=gpt2 has no gated experts and no rotary positions"
    if r.unit != "token":
        yield f"it routes by {r.unit}, not by token"
    if r.scope == "global" and not r.constant_gates:
        yield "its first layer decides for all (scope=global)"
    if r.scorer not in ("linear", "frozen", "random") and not r.constant_gates:
        yield f"its router is not linear (scorer={r.scorer})"
    if r.experts_vary:
        yield f"the number of experts varies (selection={r.selection})"
    if r.balance_bias != 0:
        yield "its selection has a bias (balance_bias)"


def equal_gates(routing: RoutingConfig, k: int, num_experts: int) -> str:
    """The gates of a design, `softmax_selected` where they are the same function."""
    only_one = k == 1 and routing.gates in ("softmax_twice", "sigmoid", "uniform")
    everyone = k == num_experts and routing.gates == "softmax_all"
    return "softmax_selected" if routing.constant_gates or only_one or everyone else routing.gates


def router_weight(mixture: Mixture) -> Tensor:
    """The linear router (E, D) of a layer: a random one's as drawn in evaluation, zeros for fixed gates."""
    config = mixture.config
    scorer = None if mixture.router is None else mixture.router.scorer
    like = cast(Tensor, mixture.experts.down_proj)
    if scorer is None:
        return like.new_zeros(config.num_experts, config.hidden_size)
    if isinstance(scorer, RandomScorer):
        draw = torch.zeros((), dtype=torch.long, device=like.device)
        normal = standard_normal(draw, scorer.layer, config.num_experts, config.hidden_size)
        return (scorer.settings.std * normal).to(like.dtype)
    return cast(Tensor, scorer.weight).detach()


NOT_SHARED = frozenset({"model_type", "architectures", "dtype", "transformers_version", "num_experts"})
"""Settings that configurations share by name only."""


def shared_settings(kind: type[PreTrainedModel], config: LoriiniConfig) -> dict[str, Any]:
    """The settings that a transformers model has in common with ours."""
    if (part := config.rope_parameters.get("partial_rotary_factor", 1)) != 1:
        raise InputError(f"its partial_rotary_factor is {part}, and all of a head is rotated there")
    names = kind.config_class().to_dict().keys() - NOT_SHARED
    shared = {name: value for name, value in config.to_dict().items() if name in names}
    # Some attentions read a `head_dim` that their configuration does not list.
    return shared if config.head_dim is None else {**shared, "head_dim": config.head_dim}


def weights_outside_experts(model: LoriiniForCausalLM) -> dict[str, Tensor]:
    """Embeddings, attention, norms and head, by the names that transformers also uses."""
    ours = names_within(model, Mixture) | {"model.router_seed"}
    return {name: weight for name, weight in model.state_dict().items() if name not in ours}


def swiglu_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`gate_proj`, `up_proj` and `down_proj` of gated experts; a factorised gate is multiplied out."""
    gate = weights["gate_proj"]
    if "low_proj" in weights:
        gate = (gate.float() @ weights["low_proj"].float()).to(gate.dtype)
    return {"gate_proj": gate, "up_proj": weights["up_proj"], "down_proj": weights["down_proj"]}


def build(
    kind: type[PreTrainedModel], settings: Mapping[str, Any], weights: Mapping[str, Tensor], device: Any
) -> PreTrainedModel:
    """A transformers model that shares these weights. InputError if it needs other weights or shapes."""
    config = kind.config_class(**settings)
    dtype = weights["model.embed_tokens.weight"].dtype
    with torch.device("meta"):
        model = kind._from_config(config, dtype=dtype)
    with torch.device(device):
        model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its buffers are computed, not loaded
    given = {name: tuple(weight.shape) for name, weight in weights.items()}
    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    if reason := _difference(given, expected):
        raise InputError(reason)
    model.load_state_dict(weights, assign=True)
    model.tie_weights()
    return model.requires_grad_(False).eval()


def _difference(given: Mapping[str, Sequence[int]], expected: Mapping[str, Sequence[int]]) -> str | None:
    """How the weights of two models differ, by the first one that does; None where they fit."""
    if missing := sorted(expected.keys() - given.keys()):
        return f"that architecture also has {missing[0]}"
    if surplus := sorted(given.keys() - expected.keys()):
        return f"that architecture has no {surplus[0]}"
    for name, shape in expected.items():
        if given[name] != shape:
            return f"{name} is {list(given[name])}, and {list(shape)} in that architecture"
    return None


def as_llama(model: LoriiniForCausalLM, routed_by: RoutedBy) -> PreTrainedModel:
    """A Llama of the experts that a prompt or a label chooses."""
    config = model.config
    if model.device.type == "meta":  # any experts do, to see whether the shapes fit
        return to_dense(model, [torch.eye(config.num_experts)[0]] * config.num_hidden_layers)
    ids_BL = torch.zeros(1, 1, dtype=torch.long) if routed_by.prompt_BL is None else routed_by.prompt_BL
    return to_dense(model, prompt_gates(model, ids_BL.to(model.device), routed_by.labels_B))


def for_gguf(model: LoriiniForCausalLM, routed_by: RoutedBy) -> PreTrainedModel:
    """The model in the first other format that llama.cpp has; InputError with the reason of the nearest."""
    reasons, nearest = [], None
    for name in SERVED if model.config.design.unit == "token" else ("llama",):
        try:
            converted = CONVERTERS[name](model, routed_by)
        except InputError as error:
            reasons.append(str(error))
            continue
        nearest = not_gguf(converted.config)
        if nearest is None:
            return converted
    raise InputError(nearest or reasons[0])


Convert = Callable[[LoriiniForCausalLM, RoutedBy], PreTrainedModel]
CONVERTERS: dict[str, Convert] = {
    "hf": lambda model, routed_by: model,
    "llama": as_llama,
    **{name: partial(to_served, name) for name in SERVED},
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
    model: LoriiniForCausalLM, tokenizer: PreTrainedTokenizerBase, prompt: str | None, label: str | None
) -> RoutedBy:
    """The prompt or label that routes the model. InputError if it is missing, too long or without effect."""
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
