"""A model as a Hugging Face folder: weights, configuration, tokenizer and model card."""

from pathlib import Path

from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from loriini.common.atomic import atomic
from loriini.common.progress import without_progress_bars

CARD = "README.md"
REQUIRED = ("config.json", "tokenizer_config.json")


def save_model_folder(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, card: str, folder: Path
) -> None:
    """Write a model, with its tokenizer and card, atomically.

    Sets the tokenizer's `model_max_length` to the context. Tokenizer, configuration and generation settings
    all get the tokenizer's padding token or, if it has none, its EOS token.
    """
    tokenizer.model_max_length = model.config.max_position_embeddings
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    for settings in (model.config, model.generation_config):
        settings.pad_token_id = tokenizer.pad_token_id
    with atomic(folder) as temporary, without_progress_bars():
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        mode = (temporary / REQUIRED[0]).stat().st_mode
        for weights in temporary.glob("*.safetensors"):  # written readable by their owner alone
            weights.chmod(mode)
        (temporary / CARD).write_text(card, encoding="utf-8")


def missing_from(folder: Path) -> str | None:
    """What a model folder lacks, by its files' names and its weights' headers; None: it is complete."""
    absent = [name for name in REQUIRED if not (folder / name).is_file()]
    if absent:
        return f"no {absent[0]}"
    try:
        return None if readable_safetensors(folder) else "no safetensors"
    except (OSError, SafetensorError) as error:
        return str(error)


def readable_safetensors(folder: Path) -> int:
    """The number of safetensors files in a folder; SafetensorError if a header is damaged."""
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        with safe_open(file, "pt"):
            pass
    return len(files)
