"""Models and tokenizers by name: local folders, and ids on the Hugging Face Hub, which are downloaded."""

import re
from pathlib import Path
from textwrap import shorten

from loriini.common.errors import InputError

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?")
"""ORG/NAME, or ORG/NAME@REVISION."""

FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""What a model or tokenizer is read from: never code, never pickled weights."""
OTHER_FORMATS = ["original/*", "consolidated*", "onnx/*", "openvino/*", "checkpoint-*/*"]
"""The same weights in other formats, and those of earlier steps."""


def is_hub_id(name: str | Path) -> bool:
    """Whether a name is not a local path and has the form of an id on the Hub."""
    return not Path(name).exists() and HUB_ID.fullmatch(str(name)) is not None


def local_folder(name: str | Path, files: tuple[str, ...] = FILES) -> Path:
    """`name` itself if it is a path or cannot be an id, else the folder of the files downloaded from the Hub.

    A folder that was downloaded before needs no connection. InputError for an id that is neither downloaded
    nor on the Hub.
    """
    if not is_hub_id(name):
        return Path(name)
    from huggingface_hub import snapshot_download

    repository, _, revision = str(name).partition("@")
    try:
        folder = snapshot_download(
            repository, revision=revision or None, allow_patterns=list(files), ignore_patterns=OTHER_FORMATS
        )
    except Exception as error:  # the Hub's, or its HTTP library's
        raise InputError(
            f"{name}: no such folder here, and no download from the Hugging Face Hub "
            f"({shorten(str(error), 200)}); check the name, go online, or give a folder"
        ) from error
    return Path(folder)
