"""Checkpoints: safetensors and a JSON state, written whole, checked on reading, the last few kept."""

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from loriini.data.artifact import file_hash, sync, write_json
from loriini.progress import warn


@dataclass(frozen=True)
class CheckpointConfig:
    """A checkpoint every `every` steps (0: only when interrupted), of which the last `keep` stay."""

    every: int = 200
    keep: int = 2


@dataclass(frozen=True)
class Progress:
    """Where a run stands: `step` steps done, `consumed` instances read, `tokens` trained on.

    `skips` of the last steps in a row were left out.
    """

    step: int = 0
    consumed: int = 0
    tokens: int = 0
    skips: int = 0


TENSORS, STATE = "tensors.safetensors", "state.json"


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, at: Progress, keep: int) -> None:
    """Write `folder/step-XXXXXXXX` with everything a bitwise-equal continuation needs."""
    final = folder / f"step-{at.step:08d}"
    temporary = folder / f".{final.name}.unfinished"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for part, tensor in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{part}.{name}"] = tensor
    tensors["random"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random_of_device"] = torch.cuda.get_rng_state()
    save_file({k: v.detach().contiguous().clone() for k, v in tensors.items()}, temporary / TENSORS)
    write_json(temporary / STATE, {"progress": asdict(at), "sha256": file_hash(temporary / TENSORS)})
    shutil.rmtree(final, ignore_errors=True)
    os.replace(temporary, final)
    sync(folder)
    for old in sorted(folder.glob("step-*"))[:-keep]:
        shutil.rmtree(old)


def newest(folder: Path) -> tuple[Progress, dict[str, torch.Tensor]] | None:
    """The newest whole checkpoint: its progress and tensors. A damaged one is named and passed over."""
    for path in sorted(folder.glob("step-*"), reverse=True):
        try:
            state: dict[str, Any] = json.loads((path / STATE).read_text())
            if file_hash(path / TENSORS) != state["sha256"]:
                raise ValueError("its contents do not match their hash")
            return Progress(**state["progress"]), load_file(path / TENSORS)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            warn(f"{path}: damaged checkpoint passed over ({error})")
    return None


def restore(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Put a checkpoint's tensors back into a model, its optimizer and the random state."""
    model.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")})
    parameters = dict(model.named_parameters())
    for key, tensor in tensors.items():
        if key.startswith("optimizer."):
            _, part, name = key.split(".", 2)
            optimizer.state[parameters[name]][part] = tensor.to(parameters[name].device)
    torch.set_rng_state(tensors["random"])
    if "random_of_device" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random_of_device"])
