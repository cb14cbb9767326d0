"""Arrays on disk."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike


def new_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.memmap:
    """Map a new `.npy` file of zeros, to be written in any order.

    Its room is reserved: on a full disk this raises OSError. Writing to a page that has no room would kill
    the process (SIGBUS).
    """
    array = np.lib.format.open_memmap(path, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array
