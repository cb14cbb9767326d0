"""Vectors, and stages that hold arrays for the stages after them."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.data.jobs.artifact import Artifact, build_artifact


def unit_vectors(count: int, width: int = 16, seed: int = 0) -> NDArray[np.float16]:
    vectors = np.random.default_rng(seed).normal(size=(count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def stage_of(folder: Path, documents: int = 0, **arrays: NDArray[Any]) -> Artifact:
    """A finished stage whose files are these arrays, NAME.npy, and its count of documents."""

    def write(temporary: Path) -> dict[str, int]:
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", array)
        return {"documents": documents}

    return build_artifact(folder, {}, {}, write)
