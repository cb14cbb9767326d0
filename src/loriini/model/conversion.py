"""Between kinds of model: a dense one copied into experts, a Llama's weights in, a merged Llama out."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from loriini.model.configuration import LoriiniConfig
from loriini.model.experts import Experts
from loriini.model.modeling import LoriiniForCausalLM

GATE_UP, DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"


def copy_into_experts(dense: LoriiniForCausalLM, config: LoriiniConfig) -> LoriiniForCausalLM:
    """A mixture of `config` whose experts are all copies of the dense model's FFN (Lory §3.1, warm-up).

    Everything else is carried over; routers are freshly initialised. The function is unchanged. ValueError
    when the design has shared experts or gates that do not sum to 1: the copy would compute something else.
    """
    if dense.config.num_experts != 1:
        raise ValueError(f"the model to copy has {dense.config.num_experts} experts; it must be dense (1)")
    if not config.routing.preserves_dense:
        raise ValueError(
            "a dense warm-up needs no shared experts and gates that sum to 1; "
            f"selection={config.routing.selection} with gates={config.routing.gates} and "
            f"scorer={config.routing.scorer} trains from scratch"
        )
    mixture = LoriiniForCausalLM._from_config(config, dtype=dense.dtype).to(dense.device)
    source = dense.state_dict()
    target = mixture.state_dict()
    copied = {
        name: source[name].expand_as(weight) if name in source else weight for name, weight in target.items()
    }
    mixture.load_state_dict(copied)
    return mixture.train(dense.training)


def from_llama(llama: LlamaForCausalLM) -> LoriiniForCausalLM:
    """A transformers Llama as a dense Loriini (one expert), with the same weights and logits."""
    config = LoriiniConfig(**_shared(llama.config.to_dict()), num_experts=1, routing="dense")
    dense = LoriiniForCausalLM._from_config(config, dtype=llama.dtype).to(llama.device)
    weights = {k: v for k, v in llama.state_dict().items() if ".mlp." not in k}
    for i, layer in enumerate(llama.model.layers):
        mlp = layer.mlp
        weights[f"model.layers.{i}.{GATE_UP}"] = torch.stack([mlp.gate_proj.weight, mlp.up_proj.weight])[None]
        weights[f"model.layers.{i}.{DOWN}"] = mlp.down_proj.weight[None]
    dense.load_state_dict({**dense.state_dict(), **weights})
    return dense.train(llama.training)


def to_llama(model: LoriiniForCausalLM, gates: Sequence[Tensor]) -> LlamaForCausalLM:
    """A plain Llama whose FFNs are the experts merged by `gates`, one (E,) a layer (Lory §3.1, inference).

    With the gates of a prompt it computes what prompt-routed generation computes after that prompt.
    """
    if model.config.routing.combination != "parameters" and model.config.num_experts > 1:
        raise ValueError("only designs with combination=parameters merge into one Llama")
    if model.config.num_shared_experts:
        raise ValueError("shared experts are not merged into a Llama")
    config = LlamaConfig(**_shared(model.config.to_dict()))
    llama = LlamaForCausalLM._from_config(config, dtype=model.dtype).to(model.device)
    weights = {k: v for k, v in model.state_dict().items() if ".mlp." not in k and not k.endswith("draws")}
    for i, (mixture, gates_E) in enumerate(zip(model.model.mixtures, gates, strict=True)):
        assert isinstance(mixture.experts, Experts)  # merging refuses the factorised ones' designs above
        gate_up, down = mixture.experts.merge(gates_E[None].to(model.device))
        prefix = f"model.layers.{i}.mlp"
        weights[f"{prefix}.gate_proj.weight"], weights[f"{prefix}.up_proj.weight"] = gate_up[0].chunk(2)
        weights[f"{prefix}.down_proj.weight"] = down[0]
    llama.load_state_dict(weights)
    return llama.eval()


def _shared(values: Mapping[str, object]) -> dict[str, object]:
    """The fields of a configuration that Llama and Loriini share."""
    names = set(LlamaConfig().to_dict()) - {"model_type", "architectures", "transformers_version", "dtype"}
    return {k: v for k, v in values.items() if k in names}
