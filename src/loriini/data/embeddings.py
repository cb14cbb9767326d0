"""documents → one unit vector each.

The default encoder, `lsa`, needs no download: TF-IDF of words and identifiers, then a truncated SVD fitted on
a sample (latent semantic analysis, Deerwester et al. 1990). Any other name is a sentence-transformers model.

Axes: N documents, B documents in a chunk, D embedding width.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from loriini.data.artifact import Artifact, build
from loriini.data.documents import stored_documents
from loriini.errors import InputError
from loriini.progress import console, progress

Encoder = Callable[[list[str]], NDArray[np.float32]]
"""Texts to vectors (B, D) of any length; D never changes."""

CHUNK = 8192
CHARACTERS = 10_000
"""Longer texts are cut, for the embedding only."""
SAMPLE = 50_000
FEATURES = 1 << 17
WIDTH = 256
WORDS = r"(?u)\w+|[^\w\s]"
"""Words, identifiers, numbers, and each other sign by itself, so that only blank texts have none."""


def write_embeddings(folder: Path, documents: Artifact, encoder: str = "lsa", seed: int = 0) -> Artifact:
    """Write `embeddings.npy`: float16 (N, D), one unit vector for each stored document, in their order.

    `encoder` is "lsa", or the path or name of a sentence-transformers model (the extra `loriini[encoders]`);
    `seed` is the SVD's. A text without direction (blank, for instance) gets the mean direction of the rest.
    Raises InputError when there are no documents or no such encoder.
    """
    count = documents.counts["documents"]
    if not count:
        raise InputError(f"{documents.folder}: holds no documents; choose other inputs")

    def write(temporary: Path) -> dict[str, Any]:
        if encoder == "lsa":
            encode = fit_lsa(_sample(_texts(documents), count, seed), seed)
        else:
            encode = load_encoder(encoder)
        width = _write_vectors(temporary / "embeddings.npy", _texts(documents), count, encode)
        return {"documents": count, "width": width}

    return build(folder, {"encoder": encoder, "seed": seed}, {"documents": documents.digest}, write)


def unit(vectors_BD: NDArray[np.floating]) -> NDArray[np.float32]:
    """The rows divided by their lengths; rows of zeros stay. float32 (B, D)."""
    lengths_B1 = np.linalg.norm(vectors_BD, axis=1, keepdims=True)
    return (vectors_BD / np.where(lengths_B1 > 0, lengths_B1, 1)).astype(np.float32)


def fit_lsa(texts: Iterable[str], seed: int = 0) -> Encoder:
    """Fit TF-IDF and a truncated SVD of at most 256 dimensions on `texts`; returns the encoder.

    Words are hashed into 2^17 columns, so there is no vocabulary to hold. One thread, since the order of a
    sum must not depend on how many there are: the same texts and seed give the same vectors.
    """
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.utils.extmath import randomized_svd

    words = HashingVectorizer(
        n_features=FEATURES, token_pattern=WORDS, norm=None, alternate_sign=False, dtype=np.float32
    )
    weights = TfidfTransformer(sublinear_tf=True)
    counts_BF = words.transform(texts)
    width = min(WIDTH, counts_BF.shape[0])
    with threadpool_limits(1):
        components_DF = randomized_svd(
            weights.fit_transform(counts_BF), n_components=width, n_iter=2, random_state=seed
        )[2]

    def encode(batch: list[str]) -> NDArray[np.float32]:
        with threadpool_limits(1):
            return weights.transform(words.transform(batch)) @ components_DF.T

    return encode


def load_encoder(name: str) -> Encoder:
    """A sentence-transformers model by path or name, run in bfloat16 where the machine computes in it.

    No code from a hub is run. Raises InputError when the extra is not installed or there is no such model.
    """
    try:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging
    except ImportError:
        raise InputError(
            f"encoder {name!r} needs sentence-transformers; run: pip install 'loriini[encoders]'"
        ) from None
    if name.startswith((".", "~", os.sep)) and not Path(name).expanduser().is_dir():
        raise InputError(f"encoder {name}: no such folder; give a sentence-transformers model's, or 'lsa'")
    if not console.is_terminal:
        logging.disable_progress_bar()
    try:
        model = SentenceTransformer(
            os.path.expanduser(name), trust_remote_code=False, model_kwargs={"dtype": _fast_dtype()}
        )
    except (OSError, ValueError) as error:
        raise InputError(
            f"encoder {name!r} cannot be loaded ({str(error).splitlines()[0]}); "
            "give a sentence-transformers model's path or name, or 'lsa'"
        ) from None
    batch_size = 16 if model.device.type == "cpu" else 256

    def encode(batch: list[str]) -> NDArray[np.float32]:
        # the library itself sorts by length, within one call
        vectors = model.encode(batch, batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False)
        return vectors.float().cpu().numpy()

    return encode


def _fast_dtype() -> Any:
    """torch.bfloat16 where a GPU or the CPU's instructions have it, else torch.float32."""
    import torch

    if torch.cuda.is_available():
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        capabilities = torch.cpu.get_capabilities()
        native = any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return torch.bfloat16 if native else torch.float32


def _write_vectors(path: Path, texts: Iterator[str], count: int, encode: Encoder) -> int:
    """Write the unit vectors chunk by chunk; returns D. RuntimeError when the documents are not `count`."""
    done = 0
    with progress("embeddings", count) as advance:
        while batch := list(islice(texts, CHUNK)):
            vectors_BD = unit(encode(batch))
            if not done:
                shape = (count, vectors_BD.shape[1])
                vectors_ND = np.lib.format.open_memmap(path, "w+", np.float16, shape)
                sum_D = np.zeros(shape[1])
            vectors_ND[done : done + len(batch)] = vectors_BD
            sum_D += vectors_BD.sum(0)
            done += len(batch)
            advance(len(batch))
    if done != count:
        raise RuntimeError(f"{done} documents were read, the manifest has {count}")
    if not sum_D.any():
        sum_D[0] = 1
    for first in range(0, count, CHUNK):
        chunk_BD = vectors_ND[first : first + CHUNK]
        chunk_BD[~chunk_BD.any(1)] = unit(sum_D[None])[0]
    vectors_ND.flush()
    return shape[1]


def _texts(documents: Artifact) -> Iterator[str]:
    return (document.text[:CHARACTERS] for document in stored_documents(documents))


def _sample(texts: Iterator[str], count: int, seed: int) -> Iterator[str]:
    """At most 50,000 of `count` texts, drawn without replacement, in their order."""
    if count <= SAMPLE:
        return texts
    chosen = np.zeros(count, bool)
    chosen[np.random.default_rng(seed).choice(count, SAMPLE, replace=False)] = True
    return (text for text, taken in zip(texts, chosen, strict=True) if taken)
