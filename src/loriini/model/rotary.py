"""Checks of `rope_parameters`, the settings of rotary positions; transformers warns of unknown names."""

from collections.abc import Mapping
from typing import Any

from loriini.common.checks import Positive, mismatch

ROPE_TYPES = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""The `rope_type`s of Llama's rotary positions, and the settings that each needs."""
ROPE_TYPES_OF_BLOCK: dict[str, dict[str, tuple[str, ...]]] = {
    "phimoe": {"default": (), "longrope": (*ROPE_TYPES["longrope"], "short_mscale", "long_mscale")},
    "gpt2": {"default": ()},  # it has no rotary positions
}
"""The same for blocks with other positions than Llama's."""


def rotary_problem(parameters: Mapping[str, Any], block: str) -> str | None:
    """What is wrong with `rope_parameters`; None if the block can have them."""
    required = ROPE_TYPES_OF_BLOCK.get(block, ROPE_TYPES)
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in required:
        return f"rope_type is {kind!r}; with block={block} it must be one of: {', '.join(required)}"
    if missing := [name for name in required[kind] if parameters.get(name) is None]:
        return f"rope_type={kind} needs {' and '.join(missing)}"
    if parameters.get("rope_theta", 1) is None:
        return "rope_parameters has no rope_theta; give it next to rope_type, as a number above 0"
    for name, value in parameters.items():
        is_number = name not in ("rope_type", "type", "truncate") and not isinstance(value, list | None)
        if is_number and (expected := mismatch(value, Positive)):
            return f"rope_parameters.{name} is {value!r}; it must be {expected}"
    return None
