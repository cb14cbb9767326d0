"""A file of tensors is what safetensors writes, without a copy of the tensors in memory."""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from loriini.train.checkpoints.tensor_file import write_tensors

DTYPES = (torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.bool, torch.float64, torch.float16)
SHAPES = ((), (1,), (3,), (2, 5), (0, 4), (3, 1, 7))
METADATA = {"format": "pt", "länge": '"7"'}


def odd_tensors() -> dict[str, Tensor]:
    """Every dtype in every shape; names that do not begin in the order of the dtypes."""
    return {
        f"{i} {shape} é": torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
        for i, dtype in enumerate(DTYPES)
        for shape in SHAPES
    }


def test_safetensors_reads_what_was_written(tmp_path: Path) -> None:
    tensors = odd_tensors()
    write_tensors(tmp_path / "file", tensors, METADATA)
    read = load_file(tmp_path / "file")
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)
    with safe_open(tmp_path / "file", "pt") as file:
        assert file.metadata() == METADATA


def test_views_are_written_as_tensors_of_their_own(tmp_path: Path) -> None:
    whole = torch.arange(12).reshape(3, 4)
    views = {"whole": whole, "rows": whole[1:], "columns": whole.t(), "every other": whole.flatten()[::2]}
    write_tensors(tmp_path / "file", views, {})
    read = load_file(tmp_path / "file")
    assert all(torch.equal(read[name], view) for name, view in views.items())
