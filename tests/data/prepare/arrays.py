"""Vectors, and stages that hold arrays or documents for the stages after them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.data.jobs.artifact import Artifact, build_artifact
from loriini.data.prepare.text.documents import write_documents
from loriini.data.read.document import Document
from loriini.data.read.streams import DocumentStream


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


def documents_stage(folder: Path, made: Iterable[str | Document]) -> Artifact:
    """A finished stage of these documents; texts have their numbers as ids."""
    documents = [Document(f"d{i}", d, "any") if isinstance(d, str) else d for i, d in enumerate(made)]
    return write_documents(folder, [DocumentStream(lambda _: documents, "made")], {})
