from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

from data.prepare.arrays import documents_stage
from loriini.common.errors import InputError
from loriini.data.jobs.artifact import Artifact
from loriini.data.prepare.similarity import embeddings, encoders, lsa
from loriini.data.prepare.text.words import WORDS_AND_SIGNS

BIRDS = ["the lory eats nectar and fruit", "a parrot eats fruit and seeds", "the lorikeet drinks nectar"]
CODE = [
    "def walk(graph): return graph",
    "def sort(graph): return sorted(graph)",
    "class Graph: def walk(self)",
]


def write(
    folder: Path, documents: Artifact, encoder: str = "lsa", seed: int = 0, pooling: str = "mean"
) -> Artifact:
    return embeddings.write_embeddings(folder, documents, encoder, seed, pooling)  # type: ignore[arg-type]


def vectors_of(folder: Path, texts: Iterable[str]) -> NDArray[np.float16]:
    return np.load(
        write(folder / "embeddings", documents_stage(folder / "documents", texts)).path("embeddings.npy")
    )


def assert_unit(vectors: NDArray[np.float16]) -> None:
    assert np.allclose(np.linalg.norm(vectors.astype(np.float32), axis=1), 1, atol=1e-3)


def test_unit_vectors_of_two_topics(tmp_path: Path) -> None:
    vectors = vectors_of(tmp_path / "a", BIRDS + CODE)
    assert vectors.dtype == np.float16
    assert vectors.shape[0] == 6
    assert_unit(vectors)
    cosines = vectors.astype(np.float32) @ vectors.astype(np.float32).T
    within = (cosines[:3, :3].sum() - 3 + cosines[3:, 3:].sum() - 3) / 12
    assert within > cosines[:3, 3:].mean() + 0.1
    assert vectors_of(tmp_path / "again", BIRDS + CODE).tobytes() == vectors.tobytes()


@pytest.mark.parametrize("texts", [["one"], ["one", "two words"], ["?!"], ["word", "…", "—"]])
def test_tiny_corpora(tmp_path: Path, texts: list[str]) -> None:
    assert_unit(vectors_of(tmp_path, texts))


def test_the_sample_is_of_the_whole_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of the documents that come first, which may all be of one source."""
    monkeypatch.setattr(embeddings, "SAMPLE", 20)
    texts = [f"parrot number {i} of the parrots" for i in range(20)]
    texts += [f"graph {'walk' if i % 2 else 'sort'} edge{i}" for i in range(20)]
    vectors = vectors_of(tmp_path, texts).astype(np.float32)
    assert vectors[20] @ vectors[22] > vectors[20] @ vectors[21] + 0.01


def test_lsa_equals_the_product_over_all_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The naive twin: scikit-learn's weights, and directions with all their zeros."""
    encode = lsa.fit_lsa(lsa.count_words(BIRDS, lsa.FEATURES))
    encode.save(tmp_path / "lsa.npz")
    monkeypatch.setattr(lsa, "FEATURES", 7)  # a fitted encoder knows its own
    assert encode.components_DS.shape[1] < 100
    words = HashingVectorizer(
        n_features=1 << 10, token_pattern=WORDS_AND_SIGNS, norm=None, alternate_sign=False, dtype=np.float32
    )
    weights = TfidfTransformer(sublinear_tf=True).fit(words.transform(BIRDS))
    all_DF = np.zeros((len(BIRDS), 1 << 10), np.float32)
    all_DF[:, encode.used_S] = encode.components_DS
    expected = weights.transform(words.transform(BIRDS + CODE)) @ all_DF.T
    for encoder in (encode, lsa.LsaEncoder.load(tmp_path / "lsa.npz")):
        assert np.array_equal(encoder(BIRDS + CODE), expected)
        assert not encoder(["unheard"]).any()


def test_the_directions_are_those_of_a_full_svd_whatever_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The naive twin: numpy's SVD. Five strong directions, and noise."""
    monkeypatch.setattr(lsa, "ROWS_PER_PRODUCT", 7)
    rng = np.random.default_rng(0)
    strong = rng.standard_normal((60, 5)) * [50, 40, 30, 20, 10] @ rng.standard_normal((5, 40))
    matrix = scipy.sparse.csr_matrix((strong + rng.standard_normal((60, 40)) / 100).astype(np.float32))
    found, shared = (lsa.right_singular_vectors(matrix, 5, 0, threads) for threads in (1, 3))
    expected = np.linalg.svd(matrix.toarray())[2][:5]
    assert np.allclose(np.abs((found * expected).sum(1)), 1, atol=1e-4)
    assert found.tobytes() == shared.tobytes()


def test_a_sample_of_all_documents_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{kind} number {i} of the {kind}" for i in range(20) for kind in ("parrots", "graphs")]
    seen: list[str] = []
    count_words = lsa.count_words

    def count(given: Iterable[str], columns: int) -> object:
        given = list(given)
        seen.extend(given)
        return count_words(given, columns)

    monkeypatch.setattr(embeddings, "count_words", count)
    monkeypatch.setattr(lsa, "count_words", count)
    vectors = vectors_of(tmp_path, texts)
    assert seen == texts
    recounted = lsa.fit_lsa(count_words(texts, lsa.FEATURES))(texts)
    assert np.array_equal(vectors, embeddings.normalize_rows(recounted).astype(np.float16))


@pytest.mark.parametrize("sample", [3, 4])
def test_only_the_beginning_of_a_long_text_counts(
    sample: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not all texts are in the sample."""
    monkeypatch.setattr(embeddings, "SAMPLE", sample)
    long = "parrot " * 2000
    vectors = vectors_of(tmp_path, [long + "graph graph", long + "walk", "graph walk", "walk graph"])
    assert np.array_equal(vectors[0], vectors[1])


def test_a_row_that_is_not_finite_has_no_direction() -> None:
    rows = np.array([[3, 4], [np.nan, 1], [np.inf, 1], [0, 0]], np.float32)
    assert np.allclose(embeddings.normalize_rows(rows), [[0.6, 0.8], [0, 0], [0, 0], [0, 0]])


def test_a_trained_encoder_is_identified_by_its_settings_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def load_encoder(*settings: str) -> encoders.Encoder:
        asked.append(settings)
        return lambda texts: np.array([[3, 4]] * len(texts), np.float32)

    monkeypatch.setattr(encoders, "load_encoder", load_encoder)
    stored = documents_stage(tmp_path / "documents", BIRDS)
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (encoder / "model.safetensors").write_bytes(b"one")
    written = write(tmp_path / "e", stored, str(encoder), 0, "cls")
    assert asked == [(str(encoder), "cls")]
    assert written.settings == {"encoder": "path", "pooling": "cls"}
    assert np.allclose(np.load(written.path("embeddings.npy")), [0.6, 0.8], atol=1e-3)
    write(tmp_path / "e", stored, str(encoder), 1, "cls")  # the seed is for lsa alone
    write(tmp_path / "e", stored, f"{tmp_path}/./encoder/", 0, "cls")  # by another path
    (encoder / "model.safetensors").write_bytes(b"two")
    with pytest.raises(InputError, match=r"other inputs .*model\.safetensors"):
        write(tmp_path / "e", stored, str(encoder), 0, "cls")
