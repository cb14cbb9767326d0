"""Loading of a model and its tokenizer from a run's folder or a Hugging Face folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from loriini.common.errors import InputError, is_system_error
from loriini.common.folders import ADAPTER, MERGE_ADAPTER, model_folder
from loriini.common.hardware import find_device
from loriini.common.json_file import read_object
from loriini.common.progress import without_progress_bars
from loriini.common.tokenizers import holds_tokenizer, without_chance
from loriini.common.weights import check_weights
from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM
from loriini.model.weights.pretrained import (
    FAMILIES,
    config_from_transformers,
    from_transformers,
    read_complete,
)


def load_model(
    path: str | Path, device: str | torch.device | None = None
) -> tuple[LoriiniForCausalLM, PreTrainedTokenizerBase]:
    """Load a RUN, or a Hugging Face folder such as its `model/`, for evaluation.

    The model is in `eval()`, in the dtype it was saved in, on `device` (default: the accelerator if there is
    one). `path` may also be an id on the Hugging Face Hub. A model of transformers is converted by
    `from_transformers`. The tokenizer pads on the left, as batches for `generate` need. InputError for other
    folders and for a device that this machine does not have.
    """
    device = find_device(device)
    folder = model_folder(Path(path))
    with readable(folder), without_progress_bars():
        model, tokenizer = read_model(folder), tokenizer_in(folder)
        tokenizer.padding_side = "left"
        return model.to(device).eval(), tokenizer


def read_model(folder: Path) -> LoriiniForCausalLM:
    """The model of a Hugging Face folder, on the CPU.

    Only the special tokens of its generation settings are kept. Use within `readable`: errors are of many
    kinds, for a folder that cannot be read, settings that Loriini lacks, or weights that are not finite.
    """
    kind = _model_type(folder)
    if kind in FAMILIES:
        theirs = read_complete(FAMILIES[kind].model, folder)
        model, settings = from_transformers(theirs), theirs.generation_config
    else:
        model = read_complete(LoriiniForCausalLM, folder)
        settings = model.generation_config
    check_weights(model)
    model.generation_config = _special_tokens(settings)
    return model


def _special_tokens(settings: GenerationConfig) -> GenerationConfig:
    """Generation settings reduced to their special tokens; ValueError for a token that is not an id."""
    tokens = {name: getattr(settings, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    for name, value in tokens.items():
        if not all(isinstance(one, int) for one in (value if isinstance(value, list) else [value or 0])):
            raise ValueError(f"its {name} is {value!r}, no token id")
    return GenerationConfig(**tokens)


def check_finite(values: Tensor, what: str) -> None:
    """InputError if a model computed NaN or infinity, which finite weights do not rule out."""
    if not values.isfinite().all():
        raise InputError(f"{what} are not finite: the model diverged or was damaged; give another")


def load_config(path: Path) -> LoriiniConfig:
    """The configuration of the model that `load_model` would load, without its weights."""
    folder = model_folder(path)
    with readable(folder):
        return read_config(folder)


def read_config(folder: Path) -> LoriiniConfig:
    """The configuration of the model that `read_model` would read."""
    if _model_type(folder) in FAMILIES:
        return config_from_transformers(AutoConfig.from_pretrained(folder, trust_remote_code=False))
    return LoriiniConfig.from_pretrained(folder)


def tokenizer_in(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a Hugging Face folder; code in the folder is never run.

    Text is split as `tokenizer.json` says, as in `prepare`. For some models, such as Qwen2, AutoTokenizer
    chooses a class that splits by rules of its own; its special tokens are kept.
    """
    if not holds_tokenizer(folder) and not (folder / "vocab.json").exists():
        raise InputError(f"{folder}: no tokenizer here (no tokenizer.json); copy that of the corpus or model")
    with readable(folder, "tokenizer"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if type(tokenizer) is not PreTrainedTokenizerFast and (folder / "tokenizer.json").exists():
            kept = {"padding_side": tokenizer.padding_side, **tokenizer.special_tokens_map}
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, **kept)
        without_chance(tokenizer, folder)
        if not isinstance(tokenizer.model_max_length, int | float):
            raise ValueError(f"its model_max_length is {tokenizer.model_max_length!r}, no number")
        return tokenizer


def _model_type(folder: Path) -> str:
    """The `model_type` of a folder. ValueError for one whose weights would be ignored or misread."""
    if (folder / ADAPTER).exists():
        raise ValueError(MERGE_ADAPTER)
    config = read_object(folder / "config.json", "give another model")
    if config.get("quantization_config"):
        raise ValueError("its weights are quantized; give the model before that")
    kind = config.get("model_type")
    known = [LoriiniConfig.model_type, *FAMILIES]
    if kind not in known:
        raise ValueError(f"its model_type is {kind}; it must be one of: {', '.join(known)}")
    return str(kind)


@contextmanager
def readable(folder: Path, what: str = "model") -> Iterator[None]:
    """Turn any error in reading a damaged or foreign folder into an InputError of one line.

    Running out of memory is not the folder's fault and passes through. Warnings of transformers are
    silenced, since they print unescaped names from the folder.
    """
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # each library has its own
        if is_system_error(error):
            raise
        reason = " ".join(str(error).split())
        raise InputError(
            f"{folder}: the {what} cannot be read ({shorten(reason, 300)}); give another, or make it again"
        ) from error
    finally:
        logging.set_verbosity(verbosity)
