"""Checkpoints hold everything that a continuation needs, whole or not at all."""

import json
import tracemalloc
from pathlib import Path
from typing import Literal

import pytest
import torch
from safetensors import safe_open
from saved_steps import save, stepped, steps_in
from torch.distributed.checkpoint import save as torch_save
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

from loriini.parallel.mesh import SINGLE_PROCESS
from loriini.train.checkpoints import storage
from loriini.train.checkpoints.state import newest_checkpoint, read_progress
from loriini.train.checkpoints.storage import (
    CheckpointConfig,
    CheckpointWriter,
    restore,
    tensors_of,
    write_files,
)
from loriini.train.run_progress import RunProgress

AT = RunProgress(
    step=3, consumed=24, tokens=999, skips=1, expert_totals=((1.5, 0.1), (0.0, 1.6)), norms=(0.1, 3e20)
)


@pytest.mark.parametrize(
    ("design", "name"),
    [("lory", "adamw"), ("frozen", "adamw"), ("random", "adamw"), ("aoe", "adamw"), ("aoe", "muon")],
)
def test_what_is_saved_is_restored_bit_for_bit(
    design: str, name: Literal["adamw", "muon"], tmp_path: Path
) -> None:
    model, optimizer = stepped(design, name)
    save(tmp_path, (model, optimizer), AT)
    expected = torch.rand(3)

    other, other_optimizer = stepped(design, name)
    other_optimizer.state.clear()  # a run that resumes has none yet
    path = newest_checkpoint(tmp_path)
    assert path is not None
    restore(path, other, other_optimizer)
    assert read_progress(path) == AT
    assert torch.equal(torch.rand(3), expected)
    weights = other.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in model.state_dict().items())
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        state, restored = optimizer.state.get(ours, {}), other_optimizer.state.get(theirs, {})
        assert state.keys() == restored.keys()
        assert all(torch.equal(restored[part], value) for part, value in state.items())


def test_what_is_saved_is_the_state_of_that_moment(tmp_path: Path) -> None:
    model, optimizer = stepped()
    expected = {name: weight.clone() for name, weight in model.state_dict().items()}
    with CheckpointWriter(tmp_path, CheckpointConfig(keep=1)) as checkpoints:
        checkpoints.save(model, optimizer, AT)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
    restore(tmp_path / "step-00000003", model, optimizer)
    assert all(torch.equal(weight, expected[name]) for name, weight in model.state_dict().items())


def test_a_write_that_fails_does_not_prevent_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk may have room by then; two in a row are an error, as soon as the third begins."""
    commit, failing = storage.commit, {1, 3, 4}

    def sometimes(temporary: Path, path: Path) -> None:
        if int(path.name[-1]) in failing:
            raise OSError("no space")
        commit(temporary, path)

    monkeypatch.setattr(storage, "commit", sometimes)
    with CheckpointWriter(tmp_path, CheckpointConfig(keep=9)) as checkpoints:
        for step in (1, 2, 3, 4):
            checkpoints.save(*stepped(), RunProgress(step))
        with pytest.raises(OSError, match="no space"):
            checkpoints.save(*stepped(), RunProgress(5))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]
    assert capsys.readouterr().err.count("not written (no space)") == 3


def test_saving_a_step_again_replaces_it_and_clears_what_a_kill_left(tmp_path: Path) -> None:
    (tmp_path / ".step-00000003.unfinished").mkdir()
    (tmp_path / ".step-00000003.unfinished" / "half").write_text("")
    save(tmp_path, stepped(), AT, AT)
    assert steps_in(tmp_path) == ["step-00000003"]
    assert steps_in(tmp_path / "step-00000003") == [
        "shard-00001-model-00001-of-00001.safetensors",
        "state.json",
    ]


def test_the_files_are_those_of_torch(tmp_path: Path) -> None:
    """So that checkpoints of either can be read by the same reader, and torch's tools read ours."""
    tensors = tensors_of(*stepped("random"), SINGLE_PROCESS)
    write_files(tmp_path / "ours", tensors, {}, SINGLE_PROCESS).result()
    theirs = HuggingFaceStorageWriter(str(tmp_path / "theirs"), save_distributed=True)
    torch_save(dict(tensors), storage_writer=theirs, no_dist=True)
    (expected,) = (tmp_path / "theirs").iterdir()
    actual = tmp_path / "ours" / expected.name
    assert steps_in(tmp_path / "ours") == [expected.name, "state.json"]
    assert actual.stat().st_mode == expected.stat().st_mode
    with safe_open(actual, "pt") as ours, safe_open(expected, "pt") as others:
        read, written = ({**file.metadata()} for file in (ours, others))
        places = [json.loads(metadata.pop("DCP_SHARDING_INFO")) for metadata in (read, written)]
        assert places[0] == places[1]
        assert read == written
        assert ours.keys() == others.keys()
        assert all(torch.equal(ours.get_tensor(name), others.get_tensor(name)) for name in others.keys())  # noqa: SIM118


def test_a_file_is_not_made_in_memory(tmp_path: Path) -> None:
    """Where it is, a checkpoint takes three times its size, and training waits while it is made."""
    size = 1 << 22
    tensors = {name: torch.zeros(size // 4) for name in ("a", "b")}
    write_files(tmp_path / "first", tensors, {}, SINGLE_PROCESS).result()  # imports
    tracemalloc.start()
    write_files(tmp_path / "second", tensors, {}, SINGLE_PROCESS).result()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < size
