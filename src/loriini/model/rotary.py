"""Checks of `rope_parameters`, the settings of rotary positions, about which transformers only warns."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from loriini.common.checks import Positive, mismatch

REQUIRED = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""Kinds of scaling that a Llama's rotary positions have, and the settings that each needs."""

MSCALES = ("short_mscale", "long_mscale")
OF_BLOCKS = {"phimoe": {"default": (), "longrope": (*REQUIRED["longrope"], *MSCALES)}}
"""The same for blocks whose positions are not a Llama's."""

NUMBERS = {
    "rope_theta",
    "factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "low_freq_factor",
    "high_freq_factor",
    *MSCALES,
}
LISTS = {"short_factor", "long_factor"}
"""One number for each frequency: half as many as a head is wide."""
OTHERS = {"rope_type", "type", "truncate"}
SCALING = sorted((NUMBERS | LISTS) - {"rope_theta", "original_max_position_embeddings"})
"""Settings of a kind of scaling alone."""


def rotary_problem(parameters: Mapping[str, Any], head_dim: int, block: str) -> str | None:
    """What is wrong with `rope_parameters`; None if the block can have them."""
    required = OF_BLOCKS.get(block, REQUIRED)
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in required:
        return f"rope_type is {kind!r}; with block={block} it must be one of: {', '.join(required)}"
    if missing := [name for name in required[kind] if parameters.get(name) is None]:
        return f"rope_type={kind} needs {' and '.join(missing)}"
    if kind == "default" and (scaling := [name for name in SCALING if parameters.get(name) is not None]):
        scaled = ", ".join(kind for kind in required if kind != "default")
        return f"{scaling[0]} has no effect without rope_type; set it to one of: {scaled}"
    known = NUMBERS | LISTS | OTHERS
    for name, value in parameters.items():
        if name == "partial_rotary_factor" and value != 1:
            return f"partial_rotary_factor is {value}; all of a head is rotated here"
        if name not in known | {"partial_rotary_factor"}:
            nearest = get_close_matches(name, known, 1)
            return f"rope_parameters has no {name!r}" + (f"; did you mean {nearest[0]}?" if nearest else "")
        if value is None and name == "rope_theta":
            return "rope_parameters has no rope_theta; give it next to rope_type, as a number above 0"
        if value is None:
            continue
        if name in NUMBERS and (expected := mismatch(value, Positive)):
            return f"rope_parameters.{name} is {value!r}; it must be {expected}"
        if name in LISTS:
            right = isinstance(value, list) and len(value) == head_dim // 2
            if not right or any(mismatch(number, Positive) for number in value):
                return f"rope_parameters.{name} must be a list of {head_dim // 2} numbers above 0"
    return None
