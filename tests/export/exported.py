"""Models to export, and the designs that each format has."""

from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from loriini import DESIGNS, LoriiniForCausalLM, RoutingConfig
from loriini.export.converters import RoutedBy, convert
from tiny import CLOSE, label_arguments, random_ids, tiny_model

_mixtral = DESIGNS["mixtral"]
SERVED_CASES: list[tuple[str, RoutingConfig, dict[str, Any]]] = [
    ("mixtral", _mixtral, {}),
    ("mixtral", replace(_mixtral, top_k=1), {"num_key_value_heads": 1, "head_dim": 12}),
    ("mixtral", DESIGNS["frozen"], {"tie_word_embeddings": True}),
    ("mixtral", DESIGNS["random"], {}),
    ("mixtral", replace(_mixtral, top_k=1, gates="sigmoid"), {}),
    ("mixtral", replace(_mixtral, selection="all", gates="softmax_all", load_balance=0.0), {}),
    ("mixtral", replace(_mixtral, selection="all", gates="uniform", load_balance=0.0), {}),
    ("mixtral", _mixtral, {"low_rank": 8}),
    ("olmoe", replace(DESIGNS["switch"], scorer="linear"), {"qk_norm": "all"}),
    ("olmoe", _mixtral, {"qk_norm": "all", "num_key_value_heads": 1}),
    ("olmoe", DESIGNS["token-ec2"], {"qk_norm": "all"}),
    ("phimoe", replace(_mixtral, gates="sparse_mixer", jitter=0.3), {"block": "phimoe"}),
    (
        "phimoe",
        replace(_mixtral, gates="sparse_mixer", jitter=0.3),
        {"block": "phimoe", "attention_bias": True, "lm_head_bias": True},
    ),
]
"""(format, design, other settings): what leaves as a mixture of transformers."""

DENSE_CASES: list[tuple[str, RoutingConfig, dict[str, Any]]] = [
    *(
        ("llama", DESIGNS[name], {})
        for name in ("lory", "lory-top2", "prefix", "smear", "ec-segment", "label")
    ),
    *(("llama", DESIGNS[name], {}) for name in ("sequence-top1", "sequence-top2", "global-top2")),
    ("llama", DESIGNS["dense"], {"num_experts": 1}),
    ("llama", DESIGNS["dense"], {}),
    ("llama", replace(DESIGNS["lory"], num_shared_experts=2), {"tie_word_embeddings": True}),
    ("llama", replace(DESIGNS["sequence-top2"], num_shared_experts=1), {"attention_bias": True}),
    (
        "llama",
        replace(DESIGNS["sequence-top2"], selection="top_p"),
        {"num_key_value_heads": 1, "head_dim": 12},
    ),
    ("llama", DESIGNS["lory"], {"low_rank": 8}),
    ("llama", replace(DESIGNS["relu"], unit="sequence", scorer="mlp"), {"num_experts": 1 + 1}),
]
"""(format, design, other settings): what leaves as a dense model after a decision."""


def case_name(value: Any) -> str:
    """A design's name or its difference to mixtral's, for test ids."""
    if not isinstance(value, RoutingConfig):
        return str(value)
    names = [name for name, design in DESIGNS.items() if design == value]
    changed = [f"{k}={v}" for k, v in value.to_dict().items() if v != getattr(_mixtral, k)]
    return names[0] if names else ",".join(changed)


def model_of(design: RoutingConfig, **settings: Any) -> LoriiniForCausalLM:
    """A tiny model with random norms and biases, so that none is left out unnoticed."""
    model = tiny_model(replace(design, segment_length=4), **settings)
    for name, weight in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(weight, mean=float("norm" in name and "bias" not in name), std=0.3)
    return model


def decided_by(model: LoriiniForCausalLM) -> RoutedBy:
    """A decision by a prompt, or by the label of the first expert."""
    return RoutedBy(random_ids(1, 6), label_arguments(model, 1).get("routing_labels"))


def assert_equal(model: LoriiniForCausalLM, exported: PreTrainedModel, decision: RoutedBy) -> None:
    """Logits and greedy text are the model's, routed by the decision's prompt where it has one."""
    labels = {"routing_labels": decision.labels_B}
    prompt_BL = random_ids(1, 6) if decision.prompt_BL is None else decision.prompt_BL
    ids_BL = torch.cat([prompt_BL, random_ids(1, 9)], 1)
    routing = {} if decision.prompt_BL is None else {"prompt_lengths": torch.tensor([prompt_BL.shape[1]])}
    torch.testing.assert_close(exported(ids_BL).logits, model(ids_BL, **routing, **labels).logits, **CLOSE)
    arguments = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    labels = {} if decision.labels_B is None else labels
    ours = model.generate(prompt_BL, **arguments, **labels)
    assert torch.equal(exported.generate(prompt_BL, **arguments), ours)


def converted(model: LoriiniForCausalLM, to: str, decision: RoutedBy | None = None) -> PreTrainedModel:
    return convert(model, to, decision or RoutedBy())
