"""Checkpoints hold everything that a continuation needs, whole or not at all."""

import json
from pathlib import Path

import pytest
import torch

from loriini.train.checkpoint import Progress, newest, restore, save
from loriini.train.optimizer import OptimizerConfig, make_optimizer
from tiny import random_ids, tiny_model

AT = Progress(step=3, consumed=24, tokens=999, skips=1)


def stepped(design: str = "lory") -> tuple[torch.nn.Module, torch.optim.AdamW]:
    """A model and its optimizer after one step."""
    model = tiny_model(design).train()
    optimizer = make_optimizer(model, OptimizerConfig())
    model(ids := random_ids(), labels=ids).loss.backward()
    optimizer.step()
    return model, optimizer


def steps_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("design", ["lory", "mixtral", "frozen", "random", "aoe", "global-top2"])
def test_what_is_saved_comes_back_bit_for_bit(design: str, tmp_path: Path) -> None:
    model, optimizer = stepped(design)
    save(tmp_path, model, optimizer, AT, keep=2)
    expected = torch.rand(3)

    other, other_optimizer = stepped(design)
    found = newest(tmp_path)
    assert found is not None
    at, tensors = found
    restore(other, other_optimizer, tensors)
    assert at == AT
    assert torch.equal(torch.rand(3), expected)
    weights = other.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in model.state_dict().items())
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        state, restored = optimizer.state.get(ours, {}), other_optimizer.state.get(theirs, {})
        assert state.keys() == restored.keys()
        assert all(torch.equal(restored[part], value) for part, value in state.items())


def test_only_the_last_few_are_kept(tmp_path: Path) -> None:
    model, optimizer = stepped()
    for step in (9, 10, 11):
        save(tmp_path, model, optimizer, Progress(step), keep=2)
    assert steps_in(tmp_path) == ["step-00000010", "step-00000011"]


def test_saving_a_step_again_replaces_it_and_clears_what_a_kill_left(tmp_path: Path) -> None:
    model, optimizer = stepped()
    (tmp_path / ".step-00000003.unfinished").mkdir()
    (tmp_path / ".step-00000003.unfinished" / "half").write_text("")
    save(tmp_path, model, optimizer, AT, keep=2)
    save(tmp_path, model, optimizer, AT, keep=2)
    assert steps_in(tmp_path) == ["step-00000003"]
    assert steps_in(tmp_path / "step-00000003") == ["state.json", "tensors.safetensors"]


def test_there_is_none_in_a_folder_that_is_absent_or_holds_an_unfinished_one(tmp_path: Path) -> None:
    assert newest(tmp_path / "absent") is None
    (tmp_path / ".step-00000003.unfinished").mkdir()
    assert newest(tmp_path) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "tensors.safetensors").unlink(),
        lambda folder: (folder / "tensors.safetensors").write_bytes(b"short"),
        lambda folder: (folder / "state.json").unlink(),
        lambda folder: (folder / "state.json").write_text("{"),
        lambda folder: (folder / "state.json").write_text("{}"),
        lambda folder: (folder / "state.json").write_text("[]"),
        lambda folder: flip_a_bit(folder / "tensors.safetensors"),
    ],
    ids=["no tensors", "short tensors", "no state", "half a state", "empty state", "a list", "one bit"],
)
def test_a_damaged_one_is_named_and_the_one_before_is_used(
    damage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, optimizer = stepped()
    for step in (2, 3):
        save(tmp_path, model, optimizer, Progress(step), keep=2)
    damage(tmp_path / "step-00000003")
    found = newest(tmp_path)
    assert found is not None
    assert found[0].step == 2
    warning = capsys.readouterr().err
    assert warning.count("warning:") == 1
    assert "step-00000003: damaged checkpoint passed over" in warning


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_the_state_is_told_in_json(tmp_path: Path) -> None:
    save(tmp_path, *stepped(), AT, keep=1)
    state = json.loads((tmp_path / "step-00000003" / "state.json").read_text())
    assert state["progress"] == {"step": 3, "consumed": 24, "tokens": 999, "skips": 1}
