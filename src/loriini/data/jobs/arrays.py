"""Arrays on disk whose space is reserved before they are written."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike


def new_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.memmap:
    """Memory-map a new `.npy` file of zeros, to be written in any order.

    Its space is reserved, so that a full disk is an OSError here. Writing to a page without space would kill
    the process (SIGBUS).
    """
    array = np.lib.format.open_memmap(path, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array
