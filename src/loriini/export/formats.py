"""What is exported, and the formats, without heavy imports; `export.converters` has their functions."""

from dataclasses import dataclass
from typing import Annotated

from loriini.common.checks import Count, check_choice, check_fields
from loriini.common.errors import InputError
from loriini.common.options import Option


@dataclass(frozen=True)
class Format:
    """A format's help, and whether a single routing decision (by prompt or label) replaces the routers."""

    help: str
    routed_once: bool = False


FORMATS = {
    "hf": Format("the model as it is, for transformers with Loriini installed"),
    "llama": Format("a plain Llama of the experts that a prompt or a label chooses", routed_once=True),
    "mixtral": Format("a Mixtral: block llama, top-k token routing, softmax over the selected"),
    "olmoe": Format("an OLMoE: block llama with qk_norm all, top-k token routing, either softmax"),
    "phimoe": Format("a Phi-3.5-MoE: block phimoe, top-2 token routing, gates sparse_mixer"),
    "gguf": Format("a file for llama.cpp, of a Llama, a Mixtral or an OLMoE", routed_once=True),
}
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Number types of exported weights, by their short names."""


@dataclass(frozen=True)
class ExportSettings:
    """What is exported. InputError for settings that do not belong together."""

    to: Annotated[str, Option("FORMAT")]
    """One of the formats listed below."""
    dtype: Annotated[str | None, Option("TYPE", parse=lambda name: DTYPES.get(name, name))] = None
    """Type of the weights: float32 (fp32), bfloat16 (bf16) or float16 (fp16) (as trained)."""
    step: Count | None = None
    """Export the checkpoint of this step (the final model)."""
    prompt: str | None = None
    """Text that chooses the experts, for formats without a router."""
    label: str | None = None
    """Domain whose expert is exported, for a model that routes by label."""

    def __post_init__(self) -> None:
        check_choice("--to", self.to, FORMATS)
        check_fields(self, dashed=True)
        if self.dtype is not None:
            check_choice("--dtype", self.dtype, DTYPES.values())
        if (self.prompt or self.label) and not FORMATS[self.to].routed_once:
            raise InputError(
                f"--prompt and --label are for formats without a router, not --to {self.to}; leave them out"
            )
