"""Snapshots of models and tokenizers: local folders, and ids on the Hugging Face Hub that are downloaded."""

import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from loriini.common.errors import InputError
from loriini.common.progress import warn_once

if TYPE_CHECKING:
    from torch import nn

RUN, CHECKPOINTS, MODEL = "run.json", "checkpoints", "model"
"""In a run's folder: its settings, its checkpoints, and its final model as a Hugging Face folder."""
ADAPTER = "adapter_config.json"
MERGE_ADAPTER = "it holds an adapter; merge that into its model first (PEFT: merge_and_unload), and save that"
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?")
"""ORG/NAME, or ORG/NAME@REVISION."""

FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""What a model or tokenizer is read from: never code, never pickled weights."""
OTHER_FORMATS = ["original/*", "onnx/*", "openvino/*", "checkpoint-*/*"]
"""Folders of the same weights in other formats, and of earlier steps."""
TOKENIZER_FILES = (
    "token*",
    "*config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges*",
    "encoder.json",
    "*.model",
)
"""Those of a tokenizer in the formats of tokenizers, SentencePiece and GPT-2, and what names its EOS."""

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
OTHER_BPE = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")
"""Settings of a BPE that GPT-2's does not have."""

KINDS = {
    RUN: "it is a run",
    "*.safetensors": "it is a model",
    "quickstart.json": "it is a quickstart",
    "manifest.json": "it is a corpus, or a stage of one",
    "results.json": "it has the results of another command",
}
"""What a folder is, by files in it."""


def kind_of(folder: Path) -> str:
    """What a folder turned out to be, for an error message; empty if unrecognised."""
    if not folder.exists():
        return "there is no such folder"
    return next((kind for files, kind in KINDS.items() if any(folder.glob(files))), "")


def holds_tokenizer(folder: Path) -> bool:
    """Whether a folder has a whole tokenizer, not only settings of one."""
    return (folder / "tokenizer.json").exists() or (folder / "tokenizer.model").exists()


def without_chance(tokenizer: Any, source: object) -> None:
    """Turn off what is random in a tokenizer of the library `tokenizers`, or built on it; said once."""
    model = getattr(getattr(tokenizer, "backend_tokenizer", tokenizer), "model", None)
    for name in ("dropout", "alpha", "nbest_size"):  # of BPE, and of sampling in newer Unigram
        if getattr(model, name, None):
            setattr(model, name, None)
            warn_once(f"{source}: its tokenizer's {name}, which draws other ids at every call, is off")


def splits_as_gpt2(contents: Mapping[str, Any]) -> bool:
    """Whether a `tokenizer.json` is a byte-level BPE that splits text into words as GPT-2 does."""
    words, model = contents["pre_tokenizer"] or {}, contents["model"]
    return (
        model["type"] == "BPE"
        and not any(model.get(name) for name in OTHER_BPE)
        and contents["normalizer"] is None
        and all(words.get(name) == value for name, value in BYTE_LEVEL.items())
    )


def is_hub_id(name: str | Path) -> bool:
    """Whether a name is not a local path and has the form of an id on the Hub."""
    return not Path(name).exists() and HUB_ID.fullmatch(str(name)) is not None


def page_folder(model: Path, option: str) -> Path:
    """A run's folder, to write a page into. InputError that names the `option` to give for other models.

    A folder made with the name of a Hub id would hide the model, and a model's own folder is to be uploaded.
    """
    if is_hub_id(model):
        raise InputError(f"{model}: no such folder here; for a model of the Hub, give {option} for the page")
    if (model / "config.json").exists():
        raise InputError(f"{model}: a model's folder, not a run's; give {option} for the page")
    return model


def name_of(model: Path) -> str:
    """A model's name on a page: that of its folder, or for RUN/model the run's."""
    folder = model.resolve()
    return folder.parent.name if folder.name == MODEL else folder.name


def check_weights(model: "nn.Module") -> None:
    """ValueError for a weight that is NaN or infinite; no memory is allocated for the comparison."""
    for name, weight in model.named_parameters():
        if weight.numel() and not all(end.isfinite() for end in weight.detach().aminmax()):
            raise ValueError(f"{name} holds NaN or infinity")


def local_folder(name: str | Path, files: tuple[str, ...] = FILES) -> Path:
    """`name` itself if it is a path or cannot be an id, else the folder of the files downloaded from the Hub.

    A folder that was downloaded before is used without a connection. InputError for an id that is neither
    there nor on the Hub.
    """
    if not is_hub_id(name):
        return Path(name)
    from huggingface_hub import snapshot_download

    repository, _, revision = str(name).partition("@")
    try:
        folder = snapshot_download(
            repository, revision=revision or None, allow_patterns=list(files), ignore_patterns=OTHER_FORMATS
        )
    except Exception as error:  # of the Hub, or of whatever HTTP library reaches it
        raise InputError(
            f"{name}: no such folder here, and no download from the Hugging Face Hub "
            f"({shorten(str(error), 200)}); check the name, go online, or give a folder"
        ) from error
    return Path(folder)


def model_folder(path: Path) -> Path:
    """The Hugging Face folder of a run or a Hub id, or `path` if it is one. InputError for others."""
    path = local_folder(path)
    folder = path / MODEL if (path / MODEL).is_dir() else path
    if not (folder / "config.json").exists():
        export = "`loriini export {} --to hf --step N --out FOLDER`"
        if (path / RUN).exists():
            resume = f"finish it with `loriini train --resume {path}`"
            remedy = f"{resume}, or take a checkpoint of it with {export.format(path)}"
        elif (path.parent.parent / RUN).exists():
            remedy = f"take the checkpoint with {export.format(path.parent.parent)}"
        elif (folder / ADAPTER).exists():
            remedy = MERGE_ADAPTER
        else:
            remedy = "give a run's folder, or a model of the Hub as ORG/NAME"
        kind = "" if (path / RUN).exists() else kind_of(path)
        raise InputError(f"{path}: no trained model here{kind and f' ({kind})'}; {remedy}")
    return folder
