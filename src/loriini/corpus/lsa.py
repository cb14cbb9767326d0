"""The default encoder: TF-IDF of words and identifiers, then a truncated SVD fitted on a sample.

Latent semantic analysis (Deerwester et al. 1990). It needs no download. Words are hashed into 2^17 columns,
so there is no vocabulary to hold.

Axes: N texts, F columns, S columns with a word of the sample, D embedding width.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from loriini.corpus.words import WORDS_AND_SIGNS

FEATURES = 1 << 17
MOST_DIMENSIONS = 256


@dataclass(frozen=True)
class LsaEncoder:
    """A fitted encoder: the weight of every column, and the directions that are kept."""

    idf_F: NDArray[np.floating]
    used_S: NDArray[np.int64]
    """Columns in which a word of the sample falls; elsewhere the directions are 0."""
    components_DS: NDArray[np.float32]

    def __call__(self, texts: list[str]) -> NDArray[np.float32]:
        """Vectors (N, D) of any length."""
        weights = _tfidf()
        weights.idf_ = self.idf_F
        with threadpool_limits(1):
            weighted_NF = weights.transform(_count_words(texts, len(self.idf_F)))
            return weighted_NF[:, self.used_S] @ self.components_DS.T

    def save(self, path: Path) -> None:
        """Write the encoder's arrays to `path`, an `.npz` file."""
        np.savez(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> "LsaEncoder":
        """The encoder that `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**arrays)


def fit_lsa(texts: Iterable[str], seed: int = 0) -> LsaEncoder:
    """Fit the weights and a truncated SVD of at most 256 dimensions on `texts`.

    On one thread, since the order of a sum depends on how many there are: the same texts and seed give the
    same bytes.
    """
    from sklearn.utils.extmath import randomized_svd

    weights = _tfidf()
    counts_NF = _count_words(texts, FEATURES)
    dimensions = min(MOST_DIMENSIONS, counts_NF.shape[0])
    with threadpool_limits(1):
        components_DF = randomized_svd(
            weights.fit_transform(counts_NF), n_components=dimensions, n_iter=2, random_state=seed
        )[2]
    used_S = np.flatnonzero(components_DF.any(0))
    return LsaEncoder(weights.idf_, used_S, components_DF[:, used_S])


def _count_words(texts: Iterable[str], columns: int) -> Any:
    """How often each text has each hashed word, sparse (N, F)."""
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(
        n_features=columns, token_pattern=WORDS_AND_SIGNS, norm=None, alternate_sign=False, dtype=np.float32
    ).transform(texts)


def _tfidf() -> Any:
    from sklearn.feature_extraction.text import TfidfTransformer

    return TfidfTransformer(sublinear_tf=True)
