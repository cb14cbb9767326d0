"""Settings of transformers' Trainer for a test."""

from pathlib import Path
from typing import Any

from transformers import TrainingArguments


def arguments(folder: Path, **changes: Any) -> TrainingArguments:
    settings: dict[str, Any] = {
        "max_steps": 40,
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "label_names": ["shift_labels"],
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(output_dir=str(folder), **{**settings, **changes})
