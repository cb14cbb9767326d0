"""A safetensors file, written from its tensors without a copy of them, while other threads go on.

`safetensors.torch.save_file` would do so too, but only its owner may read the file that it leaves, and a full
disk is no OSError there.
"""

import json
import os
from collections.abc import Mapping
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors import TensorSpec
from torch import Tensor

ALIGNMENT = 8
"""The tensors' bytes begin at a multiple of it."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors on the CPU to a file, and sync it; OSError where it cannot be written."""
    # The widest elements first, so that those of every tensor are aligned.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    ordered = {name: tensors[name] for name in names}
    with open(path, "wb") as file:
        file.write(file_header(ordered, metadata))
        for tensor in ordered.values():
            file.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())


def file_header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """What precedes the tensors' bytes: its own length, then their names and places, one after the other."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    places = pairwise(accumulate((tensor.nbytes for tensor in tensors.values()), initial=0))
    for (name, tensor), place in zip(tensors.items(), places, strict=True):
        header[name] = {"dtype": dtype_code(tensor), "shape": list(tensor.shape), "data_offsets": place}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text  # a uint64


def dtype_code(tensor: Tensor) -> str:
    """The name that safetensors gives to a tensor's dtype, as F32."""
    return TensorSpec(dtype=str(tensor.dtype).removeprefix("torch."), shape=[], data_ptr=0, data_len=0).dtype
