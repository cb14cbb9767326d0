"""The default encoder: TF-IDF of words and identifiers, then a truncated SVD fitted on a sample.

Latent semantic analysis (Deerwester et al. 1990). It needs no download. Words are hashed into 2^17 columns,
so it keeps no vocabulary. The SVD is a randomized subspace iteration (Halko et al. 2011, alg. 4.4).

Axes: N texts, F columns, S columns with a word of the sample, W width of the subspace, D embedding width.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from loriini.data.prepare.text.words import WORDS_AND_SIGNS

FEATURES = 1 << 17
MOST_DIMENSIONS = 256
OVERSAMPLING, ITERATIONS = 10, 2
"""Additional directions of the subspace, and its iterations after the first product."""
ROWS_PER_PRODUCT = 2048
"""Rows of a sparse matrix that one thread multiplies at a time."""


@dataclass(frozen=True)
class LsaEncoder:
    """A fitted encoder: the weight of every column, and the directions that are kept."""

    idf_F: NDArray[np.floating]
    used_S: NDArray[np.int64]
    """Columns of words in the sample; elsewhere the directions are 0."""
    components_DS: NDArray[np.float32]

    def __call__(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Vectors (N, D) of any length."""
        return self.encode_counts(count_words(texts, len(self.idf_F)))

    def encode_counts(self, counts_NF: Any) -> NDArray[np.float32]:
        """The vectors (N, D) of texts with these word counts."""
        with threadpool_limits(1):
            return _weigh(counts_NF, self.idf_F)[:, self.used_S] @ self.components_DS.T

    def save(self, path: Path) -> None:
        """Write the encoder's arrays to `path`, an `.npz` file."""
        np.savez(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> "LsaEncoder":
        """The encoder that `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**arrays)


def count_words(texts: Iterable[str], columns: int) -> Any:
    """Counts of the hashed words in each text, sparse (N, F)."""
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(
        n_features=columns, token_pattern=WORDS_AND_SIGNS, norm=None, alternate_sign=False, dtype=np.float32
    ).transform(texts)


def fit_lsa(counts_NF: Any, seed: int = 0, threads: int = 1) -> LsaEncoder:
    """Fit the weights and a truncated SVD of at most 256 dimensions on the words of a sample.

    The same counts and seed give the same bytes with any number of threads.
    """
    rows, columns = counts_NF.shape
    texts_with_word_F = np.bincount(counts_NF.indices, minlength=columns)
    idf_F = (np.log((1 + rows) / (1 + texts_with_word_F)) + 1).astype(np.float32)
    used_S = np.flatnonzero(texts_with_word_F) if counts_NF.nnz else np.zeros(1, np.int64)
    weighted_NS = _weigh(counts_NF, idf_F)[:, used_S]
    return LsaEncoder(idf_F, used_S, right_singular_vectors(weighted_NS, MOST_DIMENSIONS, seed, threads))


def right_singular_vectors(matrix_NS: Any, count: int, seed: int, threads: int) -> NDArray[np.float32]:
    """The first right singular vectors of a sparse matrix (N, S), at most `count`, as rows (D, S).

    Threads share the sparse products, whose rows do not depend on each other. Dense algebra runs on one
    thread, since the order of its sums would depend on their number.
    """
    from scipy.linalg import eigh, lu, qr

    width = min(count + OVERSAMPLING, *matrix_NS.shape)
    with ThreadPoolExecutor(threads) as pool, threadpool_limits(1):
        times, times_transposed = _product(matrix_NS, pool), _product(matrix_NS.T.tocsr(), pool)
        start_NW = np.random.default_rng(seed).standard_normal((matrix_NS.shape[0], width), np.float32)
        basis_SW = times_transposed(start_NW)
        for _ in range(ITERATIONS):
            image_NW = times(lu(basis_SW, permute_l=True)[0])
            basis_SW = times_transposed(lu(image_NW, permute_l=True)[0])
        basis_SW = qr(basis_SW, mode="economic")[0]
        image_NW = times(basis_SW).astype(np.float64)
        rotation_WW = eigh(image_NW.T @ image_NW)[1][:, ::-1].astype(np.float32)
        return np.ascontiguousarray((basis_SW @ rotation_WW[:, :count]).T)


def _product(matrix: Any, pool: ThreadPoolExecutor) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Multiplication of the sparse `matrix` by a dense one."""
    starts = range(0, matrix.shape[0], ROWS_PER_PRODUCT)
    blocks = [matrix[start : start + ROWS_PER_PRODUCT] for start in starts]
    return lambda dense: np.concatenate(list(pool.map(lambda block: block @ dense, blocks)))


def _weigh(counts_NF: Any, idf_F: NDArray[np.floating]) -> Any:
    """TF-IDF weights in rows of length 1, sparse (N, F)."""
    from sklearn.feature_extraction.text import TfidfTransformer

    weights = TfidfTransformer(sublinear_tf=True)
    weights.idf_ = idf_F
    return weights.transform(counts_NF)
