"""The device, precision and memory of this machine."""

import ctypes
import os
import platform
import re
import resource
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

import torch

from loriini.common.errors import InputError

Precision = Literal["auto", "bf16", "fp32"]
"""bf16 computes in bfloat16 over float32 weights; auto: bf16 where the hardware has it."""


def pick_device() -> torch.device:
    """The current GPU of this thread if there is one, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def find_device(name: str | torch.device | None) -> torch.device:
    """A device of this machine, by default the one of `pick_device`. InputError for any other."""
    if name is None:
        return pick_device()
    available = ["cpu"]
    if torch.cuda.is_available():
        available += ["cuda", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if str(name) not in available:
        raise InputError(f"--device {name}: this machine has no such device; choose {', '.join(available)}")
    return torch.device(name)


def has_bf16(device: torch.device) -> bool:
    """Whether the hardware has instructions for bfloat16 products."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def has_amx() -> bool:
    """Whether the CPU multiplies tiles of matrices in bfloat16 (AMX); oneDNN then has other kernels."""
    return bool(torch.cpu.get_capabilities().get("amx_bf16"))


def resolve_precision(precision: Precision, device: torch.device | None = None) -> Precision:
    """`precision`; for "auto", bf16 if the hardware has it, else fp32."""
    if precision != "auto":
        return precision
    return "bf16" if has_bf16(device or pick_device()) else "fp32"


def autocast_dtype(precision: Precision, device: torch.device | None = None) -> torch.dtype | None:
    """The dtype in which autocast computes products of float32 weights; None: float32, without autocast."""
    return torch.bfloat16 if resolve_precision(precision, device) == "bf16" else None


def autocast(precision: Precision, device: torch.device | None = None) -> AbstractContextManager[None]:
    """Compute in `autocast_dtype` over float32 weights.

    `device` is the model's, by default that of `pick_device`.
    """
    device = device or pick_device()
    dtype = autocast_dtype(precision, device)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)


PEAK_FLOPS = {
    "B200": 2250e12,
    "H200 NVL": 835e12,
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
"""Dense bfloat16 FLOPs per second (V100: float16) from data sheets, by words of the device's name.

A device of an MI250X is one of its two dies.
"""


def peak_flops() -> float | None:
    """The device's peak FLOPs per second; None if unknown, as for a CPU."""
    if pick_device().type != "cuda":
        return None
    name = torch.cuda.get_device_name()
    return next((flops for words, flops in PEAK_FLOPS.items() if re.search(rf"\b{words}\b", name)), None)


def peak_memory() -> int:
    """Peak memory of this process in bytes: on the GPU if there is one, else resident."""
    return torch.cuda.max_memory_allocated() if pick_device().type == "cuda" else peak_resident()


def peak_resident(whose: int = resource.RUSAGE_SELF) -> int:
    """Peak resident bytes, mapped files included, of this process or the largest of its RUSAGE_CHILDREN."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(whose).ru_maxrss * unit


JOBS_HERE = "LORIINI_JOBS_HERE"
"""Environment variable: how many jobs of a command share this process's GPU, or without GPUs the machine."""


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return (given.split(",") if given else list(map(str, range(count))))[:count]


def machine_memory() -> float:
    """Bytes of memory that this process could have: the GPU's if there is one, else the machine's.

    Limits of a container (cgroup) and of `ulimit -v` count as the machine's memory.
    """
    device = pick_device()
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    limits = [float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    limits += [] if soft == resource.RLIM_INFINITY else [float(soft)]
    return min([*limits, *cgroup_limits()])


def cgroup_limits(
    of_process: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> list[float]:
    """The memory limits in bytes of this process's control group (version 2) and of its parents.

    Within a container the named group may not be visible; the root is then the container's own group.
    """
    limits = []
    lines = of_process.read_text().splitlines() if of_process.exists() else []
    for group in (line.removeprefix("0::/") for line in lines if line.startswith("0::/")):
        for folder in (root / group, *(root / group).parents):
            with suppress(OSError):
                text = (folder / "memory.max").read_text().strip()
                limits += [float(text)] if text.isdigit() else []
    return limits


def describe_machine() -> dict[str, Any]:
    """Processor, cores, precision and versions, for reports and benchmark results."""
    device = pick_device()
    cpu = torch.cpu.get_capabilities().get("cpu_name") or platform.processor() or platform.machine()
    return {
        "processor": torch.cuda.get_device_name() if device.type == "cuda" else str(cpu),
        "cores": os.cpu_count(),
        "precision": resolve_precision("auto", device),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def keep_freed_memory() -> None:
    """Let glibc keep freed memory instead of returning it to the system after every step.

    Every training step frees and allocates the same large tensors; the system would map and clear new pages
    for them each time. Does nothing without glibc.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, -1)
        libc.mallopt(M_TOP_PAD, 2**28)
