"""Loading of a model and its tokenizer from a run's folder or a Hugging Face folder."""

from pathlib import Path

from safetensors import SafetensorError
from transformers import AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from loriini.errors import InputError
from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM
from loriini.model.pretrained import PRETRAINED, from_pretrained_mixture


def load_model(path: Path) -> tuple[LoriiniForCausalLM, PreTrainedTokenizerBase]:
    """Load a RUN, or a Hugging Face folder such as its `model/`, for evaluation; InputError for others.

    A pretrained mixture of transformers is converted by `from_pretrained_mixture`.
    """
    folder = path / "model" if (path / "model").is_dir() else path
    if not (folder / "config.json").exists():
        unfinished = (path / "run.json").exists()
        remedy = f"finish it with `loriini train --resume {path}`" if unfinished else "give a run's folder"
        raise InputError(f"{path}: no trained model here; {remedy}")
    logging.disable_progress_bar()
    try:
        model = _read(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"{folder}: the model cannot be read ({reason}); export or train it again"
        ) from error
    return model.eval(), tokenizer


def _read(folder: Path) -> LoriiniForCausalLM:
    """The model of a Hugging Face folder; ValueError for a type that would be loaded without its weights."""
    kind = PretrainedConfig.get_config_dict(folder)[0].get("model_type")
    if kind in PRETRAINED:
        return from_pretrained_mixture(PRETRAINED[kind].model.from_pretrained(folder))
    if kind != LoriiniConfig.model_type:
        raise ValueError(f"its type is {kind}, not {' or '.join([LoriiniConfig.model_type, *PRETRAINED])}")
    return LoriiniForCausalLM.from_pretrained(folder)
