"""Conversion of a soft mixture, which merges all experts, to one that merges k experts a unit."""

from dataclasses import replace

from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM


def soft_to_top_k(model: LoriiniForCausalLM, k: int) -> LoriiniForCausalLM:
    """A copy of a Lory-like model that merges each unit's top k experts, for further training (Lory G.2).

    The weights are the same; gates become the softmax over the selected logits. With k = E the function is
    unchanged. The result may be narrowed again: E, …, 2, 1 with training in between anneals it. ValueError
    for a design that does not merge experts by a softmax of their logits, or for a k out of range.
    """
    routing = model.config.routing
    soft = routing.selection == "all" and routing.gates == "softmax_all"
    narrowed = routing.selection == "top_k" and routing.gates == "softmax_selected"
    if routing.combination != "parameters" or not (soft or narrowed):
        raise ValueError(
            f"only a soft mixture of parameters becomes a top-k one; this has selection={routing.selection}, "
            f"gates={routing.gates}, combination={routing.combination}"
        )
    design = replace(routing, selection="top_k", top_k=k, gates="softmax_selected")
    config = LoriiniConfig(**{**model.config.to_dict(), "routing": design})
    sparse = LoriiniForCausalLM._from_config(config, dtype=model.dtype).to(model.device)
    sparse.load_state_dict(model.state_dict())
    return sparse.train(model.training)
