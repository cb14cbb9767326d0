"""Conversion of a soft mixture, which merges all experts, to one of k experts a unit."""

from dataclasses import replace
from typing import Any

from loriini.model.configuration import LoriiniConfig
from loriini.model.conversion import change_design
from loriini.model.modeling import LoriiniForCausalLM


def soft_to_top_k(model: LoriiniForCausalLM, k: int, combination: Any = "parameters") -> LoriiniForCausalLM:
    """A copy of a Lory-like model that gives each unit its top k experts, for further training (Lory G.2).

    The weights are the same; gates become the softmax over the selected logits. By `parameters` the k
    experts are merged, and with k = E the function is unchanged. By `outputs` only they compute, as in a
    sparse mixture, which is another function unless k = 1. The result may be narrowed again: E, …, 2, 1 with
    training in between anneals it. `export.merged.to_llama` keeps only the k experts that a prompt selects.

    ValueError for a design that does not combine experts by a softmax of a longer unit's logits, and for a k
    out of range.
    """
    routing = model.config.routing
    merges_all = routing.soft and routing.combination == "parameters"
    narrowed = routing.selection == "top_k" and routing.unit != "token"
    gates = "softmax_all" if merges_all else "softmax_selected"
    if not (merges_all or narrowed) or routing.gates != gates:
        raise ValueError(
            f"only a soft mixture of parameters becomes a top-k one; this has selection={routing.selection}, "
            f"gates={routing.gates}, combination={routing.combination}"
        )
    design = replace(routing, selection="top_k", top_k=k, gates="softmax_selected", combination=combination)
    return change_design(model, LoriiniConfig(**{**model.config.to_dict(), "routing": design}))
