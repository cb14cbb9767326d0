"""Every test starts from the same seeds, on one thread, and reads NaN where it reads what nobody wrote."""

import gc
import os
import random
import signal
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it


def pytest_configure() -> None:
    """An editable install has the entry points that pyproject.toml had when it was made."""
    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]
    for group, declared in project["entry-points"].items():
        if not declared.keys() <= {entry.name for entry in entry_points(group=group)}:
            raise pytest.UsageError(f"entry points {group} are not installed: pip install -e . --no-deps")


def pytest_collection(session: pytest.Session) -> None:
    """Where tests are collected, and not in the process that hands them out, which needs none of this."""
    import torch
    from hypothesis import settings
    from torch._functorch import config as functorch

    settings.register_profile("loriini", deadline=None)  # tests must pass on a loaded machine
    settings.load_profile("loriini")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    functorch.enable_autograd_cache = False  # it would keep an operator's gradient as it was once written


def pytest_xdist_auto_num_workers() -> int:
    """Three test processes for two cores: tests often wait for processes that they start."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + cores // 2


def pytest_collection_finish() -> None:
    """Garbage is not searched for among the modules and tests again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seed() -> None:
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tokenizer of words that `runs` writes."""
    from transformers import AutoTokenizer

    from runs import write_tokenizer

    return AutoTokenizer.from_pretrained(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))
