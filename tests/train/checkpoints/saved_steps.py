"""Checkpoints of a tiny model after one step."""

from pathlib import Path
from typing import Literal

import torch

from loriini.train.checkpoints.storage import CheckpointConfig, CheckpointWriter
from loriini.train.optimizer import OptimizerConfig, make_optimizer
from loriini.train.run_progress import RunProgress
from tiny import random_ids, tiny_model


def stepped(
    design: str = "lory", name: Literal["adamw", "muon"] = "adamw"
) -> tuple[torch.nn.Module, torch.optim.AdamW]:
    """A model and its optimizer after one step."""
    model = tiny_model(design).train()
    optimizer = make_optimizer(model, OptimizerConfig(name=name))
    model(ids := random_ids(), labels=ids).loss.backward()
    optimizer.step()
    return model, optimizer


def save(
    folder: Path, state: tuple[torch.nn.Module, torch.optim.AdamW], *at: RunProgress, keep: int = 2
) -> None:
    """Save the same state as if it were that of several steps."""
    with CheckpointWriter(folder, CheckpointConfig(keep=keep)) as checkpoints:
        for progress in at:
            checkpoints.save(*state, progress)


def tensors_in(folder: Path) -> Path:
    (path,) = folder.glob("*.safetensors")
    return path


def steps_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
