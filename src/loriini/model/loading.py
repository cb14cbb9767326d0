"""A model and its tokenizer from a run's folder or from a Hugging Face folder."""

from pathlib import Path

from safetensors import SafetensorError
from transformers import AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from loriini.errors import InputError
from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM


def load_model(path: Path) -> tuple[LoriiniForCausalLM, PreTrainedTokenizerBase]:
    """Load a RUN, or a Hugging Face folder such as its `model/`, for evaluation; InputError for others."""
    folder = path / "model" if (path / "model").is_dir() else path
    if not (folder / "config.json").exists():
        unfinished = (path / "run.json").exists()
        remedy = f"finish it with `loriini train --resume {path}`" if unfinished else "give a run's folder"
        raise InputError(f"{path}: no trained model here; {remedy}")
    logging.disable_progress_bar()
    try:
        kind = PretrainedConfig.get_config_dict(folder)[0].get("model_type")
        if kind != LoriiniConfig.model_type:  # or its weights would be left out, and random ones used
            raise ValueError(f"its type is {kind}, not {LoriiniConfig.model_type}")
        model = LoriiniForCausalLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"{folder}: the model cannot be read ({reason}); export or train it again"
        ) from error
    return model.eval(), tokenizer
