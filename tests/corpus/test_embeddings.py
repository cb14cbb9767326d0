from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from loriini.corpus import embeddings, encoders
from loriini.corpus.documents import write_documents
from loriini.errors import InputError
from loriini.jobs.artifact import Artifact
from loriini.jobs.tasks import SERIAL
from loriini.sources.document import Document

BIRDS = ["the lory eats nectar and fruit", "a parrot eats fruit and seeds", "the lorikeet drinks nectar"]
CODE = [
    "def walk(graph): return graph",
    "def sort(graph): return sorted(graph)",
    "class Graph: def walk(self)",
]


def documents_of(folder: Path, texts: Iterable[str]) -> Artifact:
    documents = [Document(str(i), text, "any") for i, text in enumerate(texts)]
    return write_documents(folder, lambda drop: documents, {})


def vectors_of(folder: Path, texts: Iterable[str]) -> np.ndarray:
    stored = documents_of(folder / "documents", texts)
    return np.load(embeddings.write_embeddings(folder / "embeddings", stored).path("embeddings.npy"))


def test_unit_vectors_that_know_topics(tmp_path: Path) -> None:
    vectors = vectors_of(tmp_path, BIRDS + CODE)
    assert vectors.dtype == np.float16
    assert vectors.shape[0] == 6
    assert np.allclose(np.linalg.norm(vectors.astype(np.float32), axis=1), 1, atol=1e-3)
    cosines = vectors.astype(np.float32) @ vectors.astype(np.float32).T
    within = (cosines[:3, :3].sum() - 3 + cosines[3:, 3:].sum() - 3) / 12
    assert within > cosines[:3, 3:].mean() + 0.1


def test_same_bytes_again(tmp_path: Path) -> None:
    first, second = (vectors_of(tmp_path / name, BIRDS + CODE) for name in ("a", "b"))
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("texts", [["one"], ["one", "two words"], ["?!"], ["word", "…", "—"]])
def test_tiny_corpora(tmp_path: Path, texts: list[str]) -> None:
    vectors = vectors_of(tmp_path, texts)
    assert np.allclose(np.linalg.norm(vectors.astype(np.float32), axis=1), 1, atol=1e-3)


def test_sample_and_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "CHUNK", 7)
    monkeypatch.setattr(embeddings, "SAMPLE", 10)
    texts = [f"{kind} number {i} of the {kind}" for i in range(20) for kind in ("parrots", "graphs")]
    texts.append("entirely unseen")
    vectors = vectors_of(tmp_path, texts).astype(np.float32)
    assert vectors.shape == (41, 10)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    assert vectors[0] @ vectors[2] > vectors[0] @ vectors[1]


def test_the_fitted_encoder_keeps_few_columns_and_gives_the_vectors_of_all() -> None:
    encode = embeddings.fit_lsa(BIRDS)
    assert encode.components_DS.shape[1] < 100
    all_DF = np.zeros((len(BIRDS), embeddings.FEATURES), np.float32)
    all_DF[:, encode.used_S] = encode.components_DS
    expected = encode.weights.transform(encode.words.transform(BIRDS + CODE)) @ all_DF.T
    assert np.array_equal(encode(BIRDS + CODE), expected)
    assert not encode(["unheard"]).any()


def test_only_the_beginning_of_a_long_text_counts(tmp_path: Path) -> None:
    long = "parrot " * 2000
    vectors = vectors_of(tmp_path, [long + "graph", long + "walk", "graph walk"])
    assert np.array_equal(vectors[0], vectors[1])


def test_a_row_that_is_not_finite_has_no_direction() -> None:
    rows = np.array([[3, 4], [np.nan, 1], [np.inf, 1], [0, 0]], np.float32)
    assert np.allclose(embeddings.unit(rows), [[0.6, 0.8], [0, 0], [0, 0], [0, 0]])


def test_an_encoders_folder_is_told_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_encoder(*settings: str) -> embeddings.Encoder:
        return lambda texts: np.ones((len(texts), 2), np.float32)

    monkeypatch.setattr(encoders, "load_encoder", load_encoder)
    stored = documents_of(tmp_path / "documents", BIRDS)
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (encoder / "model.safetensors").write_bytes(b"one")
    embeddings.write_embeddings(tmp_path / "e", stored, str(encoder), seed=0)
    embeddings.write_embeddings(tmp_path / "e", stored, str(encoder), seed=1)  # which it does not take
    (encoder / "model.safetensors").write_bytes(b"two")
    with pytest.raises(InputError, match=r"other inputs .*model\.safetensors"):
        embeddings.write_embeddings(tmp_path / "e", stored, str(encoder))


def test_a_trained_encoder_is_taken_by_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_encoder(*settings: str) -> embeddings.Encoder:
        asked.append(settings)
        return lambda texts: np.array([[3, 4]] * len(texts), np.float32)

    monkeypatch.setattr(encoders, "load_encoder", load_encoder)
    stored = documents_of(tmp_path / "documents", BIRDS)
    written = embeddings.write_embeddings(
        tmp_path / "e", stored, "some/encoder", 1, SERIAL, "cls", "openvino"
    )
    assert asked == [("some/encoder", "cls", "openvino")]
    assert written.settings == {
        "encoder": "some/encoder",
        "pooling": "cls",
        "backend": "openvino",
    }
    assert np.allclose(np.load(written.path("embeddings.npy")), [0.6, 0.8], atol=1e-3)
