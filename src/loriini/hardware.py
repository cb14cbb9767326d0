"""What this machine can do: its device, its precision, its memory."""

import ctypes
import os
import platform
import re
import resource
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


def autocast_dtype(precision: str, device: torch.device | None = None) -> torch.dtype | None:
    """What is computed in: bfloat16 where `precision` asks for it, else None, the weights' own."""
    wanted = precision == "bf16" or (precision == "auto" and has_bf16(device or pick_device()))
    return torch.bfloat16 if wanted else None


def autocast(precision: str, device: torch.device | None = None) -> AbstractContextManager[None]:
    """Computation in bfloat16 over float32 weights, where `precision` asks for it.

    `device` is where the model is; by default that of `pick_device`.
    """
    device = device or pick_device()
    dtype = autocast_dtype(precision, device)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)


PEAK_FLOPS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "GH200": 989e12,
    "A100": 312e12,
    "A10G": 70e12,
    "A10": 125e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
    "V100": 125e12,
    "MI300X": 1307e12,
    "MI250X": 191.5e12,
}
"""Dense bfloat16 FLOPs a second (V100: float16) by words of the device's name, as its makers print them.

A device of an MI250X is one of its two dies.
"""


def peak_flops() -> float | None:
    """What this device could compute in a second; None where that is not known, as of a CPU."""
    if pick_device().type != "cuda":
        return None
    name = torch.cuda.get_device_name()
    return next((flops for words, flops in PEAK_FLOPS.items() if re.search(rf"\b{words}\b", name)), None)


def peak_memory() -> int:
    """The most bytes that this process has held: on the GPU where there is one, else in memory."""
    return torch.cuda.max_memory_allocated() if pick_device().type == "cuda" else peak_resident()


def peak_resident(who: int = resource.RUSAGE_SELF) -> int:
    """The most bytes that this process (or its largest ended child) has held, cached files included."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(who).ru_maxrss * unit


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
