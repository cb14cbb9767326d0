"""What this machine can do: its device, its precision, its memory."""

import ctypes
import os
import platform
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def pick_device() -> torch.device:
    """The accelerator when there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def has_bf16(device: torch.device) -> bool:
    """Whether bfloat16 products are instructions of this hardware."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def autocast_dtype(precision: str) -> torch.dtype | None:
    """What is computed in: bfloat16 where `precision` asks for it, else None, the weights' own."""
    wanted = precision == "bf16" or (precision == "auto" and has_bf16(pick_device()))
    return torch.bfloat16 if wanted else None


def autocast(precision: str) -> AbstractContextManager[None]:
    """Computation in bfloat16 over float32 weights, where `precision` asks for it."""
    dtype = autocast_dtype(precision)
    return nullcontext() if dtype is None else torch.autocast(pick_device().type, dtype=dtype)


def describe_machine() -> dict[str, Any]:
    """Processor, cores, precision and versions, for reports and benchmark results."""
    device = pick_device()
    return {
        "processor": torch.cuda.get_device_name() if device.type == "cuda" else processor_name(),
        "cores": os.cpu_count(),
        "precision": "bf16" if has_bf16(device) else "fp32",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def processor_name() -> str:
    """The processor's name as the system tells it."""
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return str(capabilities.get("cpu_name") or platform.processor() or platform.machine())


def keep_freed_memory() -> None:
    """Let glibc keep freed memory instead of giving it back to the system after every step.

    A training step frees and takes the same large tensors over and over, and each time the system would have
    to map and clear fresh pages. Does nothing where there is no glibc.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, -1)
        libc.mallopt(M_TOP_PAD, 2**28)
