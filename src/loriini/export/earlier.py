"""Settings by which transformers 4, and programs built on it, read an export as transformers 5 does.

Version 4 looks for some settings at other places and, where it finds none, takes its own default without a
word: rotary positions of another base give other logits.
"""

from pathlib import Path
from typing import Any

from transformers.models.auto.tokenization_auto import TOKENIZER_CONFIG_FILE
from transformers.utils import CONFIG_NAME

from loriini.atomic import write_json
from loriini.json_file import read_object


def add_earlier_settings(folder: Path) -> None:
    """Add version 4's settings to the configuration and the tokenizer of an exported model's folder."""
    for name, earlier in ((CONFIG_NAME, model_settings), (TOKENIZER_CONFIG_FILE, tokenizer_settings)):
        values = read_object(folder / name, "export again")
        write_json(folder / name, {**values, **earlier(values)})


def model_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Rotary positions as `rope_theta` and `rope_scaling`, and the number of experts as Qwen3-MoE's."""
    scaling = dict(config["rope_parameters"])
    earlier = {"rope_theta": scaling.pop("rope_theta")}
    if scaling["rope_type"] != "default":
        earlier["rope_scaling"] = scaling
    if config["model_type"] == "qwen3_moe":
        earlier["num_experts"] = config["num_local_experts"]
    return earlier


def tokenizer_settings(config: dict[str, Any]) -> dict[str, Any]:
    """A class that both versions have, and no `token_type_ids`, which these models do not take."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
    }
