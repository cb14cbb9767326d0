"""Precision by setting and hardware, peak speeds, memory, and the description of the machine."""

import json
from pathlib import Path

import pytest
import torch

from loriini.common import hardware
from loriini.common.hardware import autocast, describe_machine, pick_device


def product_type(precision: str) -> torch.dtype:
    """The dtype of a product of float32 matrices."""
    device = pick_device()
    with autocast(precision):
        return (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).dtype


@pytest.mark.parametrize("has", [True, False])
def test_precision_follows_the_setting_or_the_hardware(has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "has_bf16", lambda device: has)
    assert product_type("fp32") == torch.float32
    assert product_type("bf16") == torch.bfloat16
    assert product_type("auto") == (torch.bfloat16 if has else torch.float32)


def test_the_description_of_the_machine_is_json() -> None:
    described = json.loads(json.dumps(describe_machine()))
    assert described.keys() == {"processor", "cores", "precision", "torch", "python"}
    assert described["processor"]
    assert described["torch"] == torch.__version__


def test_memory_is_limited_by_every_control_group_around_the_process(tmp_path: Path) -> None:
    """As of a job in a slice of a node."""
    root, groups = tmp_path / "groups", tmp_path / "cgroup"
    for name, limit in (("", "9000"), ("slurm", "3000"), ("slurm/job/step", "max")):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "memory.max").write_text(f"{limit}\n")
    groups.write_text("0::/slurm/job/step\n")
    assert hardware.cgroup_limits(groups, root) == [3000, 9000]
    groups.write_text("0::/not/seen/in/here\n")
    assert hardware.cgroup_limits(groups, root) == [9000]
    assert hardware.cgroup_limits(tmp_path / "absent", root) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H200 NVL", 835e12),
        ("NVIDIA A10G", 70e12),
        ("NVIDIA A10", 125e12),
        ("Radeon of tomorrow", None),
    ],
)
def test_peaks_by_a_devices_name(name: str, expected: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "pick_device", lambda: type("Device", (), {"type": "cuda"}))
    monkeypatch.setattr(hardware.torch.cuda, "get_device_name", lambda: name)
    assert hardware.peak_flops() == expected
