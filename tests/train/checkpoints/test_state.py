"""Which checkpoints are kept, which are intact, and what they say of themselves."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from saved_steps import save, stepped, steps_in, tensors_in

from loriini.train.checkpoints.state import newest_checkpoint
from loriini.train.checkpoints.storage import CheckpointConfig, CheckpointWriter
from loriini.train.run_progress import RunProgress


def test_only_the_last_few_are_kept(tmp_path: Path) -> None:
    save(tmp_path, stepped(), RunProgress(9), RunProgress(10), RunProgress(11), keep=2)
    assert steps_in(tmp_path) == ["step-00000010", "step-00000011"]


def test_milestones_are_kept_too(tmp_path: Path) -> None:
    state = stepped()
    with CheckpointWriter(tmp_path, CheckpointConfig(keep=1, keep_every=4)) as checkpoints:
        for step in range(1, 11):
            checkpoints.save(*state, RunProgress(step))
    assert steps_in(tmp_path) == [f"step-{step:08d}" for step in (4, 8, 10)]


def test_a_score_that_is_no_number_is_not_the_best(tmp_path: Path) -> None:
    state = stepped()
    with CheckpointWriter(tmp_path, CheckpointConfig(keep=1)) as checkpoints:
        for step, score in enumerate([math.nan, 1.0, 2.0, 3.0], 1):
            checkpoints.save(*state, RunProgress(step), score)
    assert steps_in(tmp_path) == ["step-00000002", "step-00000004"]


def test_what_is_not_a_checkpoint_is_neither_dropped_nor_read(tmp_path: Path) -> None:
    others = ["step-00000001.tar", "step-00000002-good", "step-9"]
    (tmp_path / others[0]).write_text("")
    for name in others[1:]:
        (tmp_path / name).mkdir()
    save(tmp_path, stepped(), RunProgress(2), RunProgress(3), keep=1)
    assert steps_in(tmp_path) == sorted([*others, "step-00000003"])
    shutil.rmtree(tmp_path / "step-00000003")
    assert newest_checkpoint(tmp_path) is None


def set_count(folder: Path, name: str, value: Any) -> None:
    """Write a count into a checkpoint's state, or leave it out."""
    state = json.loads((folder / "state.json").read_text())
    state["progress"][name] = value
    if value is None:
        del state["progress"][name]
    (folder / "state.json").write_text(json.dumps(state))


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 2 and 3."""
    folder = tmp_path_factory.mktemp("checkpoints")
    save(folder, stepped(), RunProgress(2), RunProgress(3))
    return folder


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: tensors_in(folder).unlink(),
        lambda folder: tensors_in(folder).write_bytes(b"short"),
        lambda folder: (folder / "state.json").unlink(),
        lambda folder: (folder / "state.json").write_text("{"),
        lambda folder: (folder / "state.json").write_text("{}"),
        lambda folder: (folder / "state.json").write_text("[]"),
        lambda folder: set_count(folder, "expert_totals", [[1.0, "x"]]),
        lambda folder: set_count(folder, "expert_totals", [[1.0, 2.0], [3.0]]),
        lambda folder: set_count(folder, "expert_totals", 7),
        lambda folder: set_count(folder, "norms", [1.0, None]),
        lambda folder: set_count(folder, "skips", None),
        lambda folder: flip_a_bit(tensors_in(folder)),
    ],
    ids=[
        *("no tensors", "short tensors", "no state", "half a state", "empty state", "a list"),
        *("amounts of words", "ragged amounts", "no list of amounts", "a norm of null"),
        *("no skips", "one bit"),
    ],
)
def test_a_damaged_one_is_named_and_the_one_before_is_used(
    damage, two_steps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(two_steps, tmp_path, dirs_exist_ok=True)
    damage(tmp_path / "step-00000003")
    assert newest_checkpoint(tmp_path) == tmp_path / "step-00000002"
    warning = capsys.readouterr().err
    assert warning.count("warning:") == 1
    assert "step-00000003: damaged checkpoint passed over" in warning


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
