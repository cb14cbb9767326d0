"""Settings by which transformers 4, and programs built on it, read an export as transformers 5 does.

Version 4 looks for some settings at other places and, where it finds none, takes its own default without a
word: rotary positions of another base give other logits.
"""

from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.models.auto.tokenization_auto import TOKENIZER_CONFIG_FILE
from transformers.utils import CONFIG_NAME

from loriini.common.atomic import write_json
from loriini.common.json_file import read_object


def add_earlier_settings(folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Add version 4's settings to the configuration and the tokenizer of an exported model's folder."""
    config = read_object(folder / CONFIG_NAME, "export again")
    write_json(folder / CONFIG_NAME, {**config, **model_settings(config)})
    values = read_object(folder / TOKENIZER_CONFIG_FILE, "export again")
    write_json(folder / TOKENIZER_CONFIG_FILE, {**values, **tokenizer_settings(tokenizer)})


def model_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Rotary positions as `rope_theta` and `rope_scaling`, and the number of experts as Qwen3-MoE's."""
    scaling = dict(config["rope_parameters"])
    earlier = {"rope_theta": scaling.pop("rope_theta")}
    if scaling["rope_type"] != "default":
        earlier["rope_scaling"] = scaling
    if config["model_type"] == "qwen3_moe":
        earlier["num_experts"] = config["num_local_experts"]
    return earlier


def tokenizer_settings(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """A class that both versions have, with the sides that the tokenizer's own class may pad and cut.

    Without `token_type_ids`, which these models do not take.
    """
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "padding_side": tokenizer.padding_side,
        "truncation_side": tokenizer.truncation_side,
        "model_input_names": ["input_ids", "attention_mask"],
    }
