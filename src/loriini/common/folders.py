"""Folders that commands write: the parts of a run's folder, and how to recognise other kinds."""

from pathlib import Path

from loriini.common.errors import InputError
from loriini.common.hub import is_hub_id, local_folder

RUN, TOKENIZER, CHECKPOINTS, MODEL = "run.json", "tokenizer", "checkpoints", "model"
"""In a run's folder: settings, tokenizer, checkpoints, and the final model as a Hugging Face folder."""
MANIFEST = "manifest.json"
"""File in the folder of a corpus, and of each of its stages."""
ADAPTER = "adapter_config.json"
MERGE_ADAPTER = "it holds an adapter; merge that into its model first (PEFT: merge_and_unload), and save that"

KINDS = {
    RUN: "it is a run",
    "*.safetensors": "it is a model",
    "quickstart.json": "it is a quickstart",
    MANIFEST: "it is a corpus, or a stage of one",
    "results.json": "it has the results of another command",
}
"""Kinds of folders, by a file that each has."""


def kind_of(folder: Path) -> str:
    """What a folder turned out to be, for an error message; empty if unrecognised."""
    if not folder.exists():
        return "there is no such folder"
    return next((kind for files, kind in KINDS.items() if any(folder.glob(files))), "")


def page_folder(model: Path, option: str) -> Path:
    """A run's folder, to write a page into. For other models, InputError that asks for `option` instead.

    A new folder named like a Hub id would hide that model, and a model's own folder may be uploaded.
    """
    if is_hub_id(model):
        raise InputError(f"{model}: no such folder here; for a model of the Hub, give {option} for the page")
    if (model / "config.json").exists():
        raise InputError(f"{model}: a model's folder, not a run's; give {option} for the page")
    return model


def name_of(model: Path) -> str:
    """A model's name on a page: its folder's name, or for RUN/model the run's."""
    folder = model.resolve()
    return folder.parent.name if folder.name == MODEL else folder.name


def model_folder(path: Path) -> Path:
    """The Hugging Face folder of a run or Hub id, or `path` if it is such a folder. InputError for others."""
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
