"""The table of export formats, without heavy imports; `export.converting` has their functions."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A format's help, and whether a single routing decision (by prompt or label) replaces the routers."""

    help: str
    decided: bool = False


FORMATS = {
    "hf": Format("the model as it is, for transformers with Loriini installed"),
    "llama": Format("a plain Llama of the experts that a prompt or a label chooses", decided=True),
    "qwen2": Format("the same as a Qwen2: biases of queries, keys and values", decided=True),
    "qwen3": Format("the same as a Qwen3: norms of each head's queries and keys", decided=True),
    "mixtral": Format("a Mixtral: block llama, top-k token routing, softmax over the selected"),
    "olmoe": Format("an OLMoE: block olmoe, top-k token routing, either softmax"),
    "phimoe": Format("a Phi-3.5-MoE: block phimoe, top-2 token routing, gates sparse_mixer"),
    "qwen2_moe": Format("a Qwen2-MoE: block llama, top-k token routing, either softmax, shared experts"),
    "qwen3_moe": Format("a Qwen3-MoE: norms of each head's queries and keys, either softmax"),
    "gguf": Format("a file for llama.cpp, of most of these", decided=True),
}
DTYPES = ("float32", "bfloat16", "float16")
SHORT_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Number types of exported weights."""
