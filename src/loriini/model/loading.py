"""Loading of a model and its tokenizer from a run's folder or a Hugging Face folder."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from loriini.errors import InputError
from loriini.hardware import pick_device
from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM
from loriini.model.pretrained import PRETRAINED, from_pretrained_mixture, mixture_config


def load_model(
    path: Path, device: str | torch.device | None = None
) -> tuple[LoriiniForCausalLM, PreTrainedTokenizerBase]:
    """Load a RUN, or a Hugging Face folder such as its `model/`, for evaluation.

    The model is in `eval()`, in the dtype it was saved in, on `device` (default: the accelerator if there is
    one). A pretrained mixture of transformers is converted by `from_pretrained_mixture`. InputError
    for other folders and for a device that this machine does not have.
    """
    device = find_device(device)
    folder = model_folder(path)
    logging.disable_progress_bar()
    with _readable(folder):
        kind = _model_type(folder)
        if kind in PRETRAINED:
            model = from_pretrained_mixture(PRETRAINED[kind].model.from_pretrained(folder))
        else:
            model = LoriiniForCausalLM.from_pretrained(folder)
        return model.to(device).eval(), AutoTokenizer.from_pretrained(folder)


def load_config(path: Path) -> LoriiniConfig:
    """The configuration of the model that `load_model` would load, without its weights."""
    folder = model_folder(path)
    with _readable(folder):
        if _model_type(folder) in PRETRAINED:
            return mixture_config(AutoConfig.from_pretrained(folder))
        return LoriiniConfig.from_pretrained(folder)


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of the model that `load_model` would load."""
    folder = model_folder(path)
    with _readable(folder):
        return AutoTokenizer.from_pretrained(folder)


def model_folder(path: Path) -> Path:
    """The Hugging Face folder of a run, or `path` if it is one itself. InputError where there is no model."""
    folder = path / "model" if (path / "model").is_dir() else path
    if not (folder / "config.json").exists():
        unfinished = (path / "run.json").exists()
        remedy = f"finish it with `loriini train --resume {path}`" if unfinished else "give a run's folder"
        raise InputError(f"{path}: no trained model here; {remedy}")
    return folder


def run_precision(path: Path) -> str:
    """The precision that a run was trained in, for `hardware.autocast`; `auto` where there is no run."""
    folder = model_folder(path)
    run = folder.parent / "run.json"
    if folder.name != "model" or not run.exists():
        return "auto"
    return str(json.loads(run.read_text()).get("precision", "auto"))


def find_device(name: str | torch.device | None) -> torch.device:
    """A device of this machine, by default the one of `pick_device`. InputError for any other."""
    if name is None:
        return pick_device()
    available = ["cpu"]
    if torch.cuda.is_available():
        available += ["cuda", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if str(name) not in available:
        raise InputError(f"--device {name}: this machine has no such device; choose {', '.join(available)}")
    return torch.device(name)


def _model_type(folder: Path) -> str:
    """The type in a folder's config. ValueError for a kind whose weights would be left out."""
    kind = PretrainedConfig.get_config_dict(folder)[0].get("model_type")
    known = [LoriiniConfig.model_type, *PRETRAINED]
    if kind not in known:
        raise ValueError(f"its type is {kind}, not {' or '.join(known)}")
    return str(kind)


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Turn the errors of reading a damaged or foreign folder into an InputError of one line."""
    try:
        yield
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"{folder}: the model cannot be read ({reason}); export or train it again"
        ) from error
