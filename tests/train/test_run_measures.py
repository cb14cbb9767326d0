"""What a run measures is prepared by all of its processes, or by none."""

import os
from pathlib import Path
from unittest.mock import Mock, patch

from together import job


def measured_by_this_process() -> list[str]:
    """The measures that `train_run` gives to `train`, where only the first process sees a finished run."""
    from loriini.train import launch

    stubs = {
        "read_corpora": Mock(),
        "check_sizes": Mock(),
        "without_auto": lambda run, corpus, out: None,
        "has_model": lambda out: os.environ["RANK"] == "0",
        "measures": lambda run, corpus: ["perplexity"],
        "train": lambda run, corpus, out, measured, *more: list(measured),
    }
    with patch.multiple(launch, **stubs):
        found: list[str] = launch.train_run(Mock(), Path("run"))  # type: ignore[assignment]
    return found


def test_processes_that_see_another_folder_measure_alike() -> None:
    assert job(2, measured_by_this_process) == [[], []]
