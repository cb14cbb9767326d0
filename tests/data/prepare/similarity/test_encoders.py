import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizerFast,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from data.prepare.arrays import documents_stage
from hostile.planted import planted
from hostile.runner import MARKER
from loriini.common.errors import InputError
from loriini.data.prepare.similarity import encoders
from loriini.data.prepare.similarity.embeddings import normalize_rows, write_embeddings

TEXTS = [
    "the lory eats nectar and fruit",
    "def walk(graph): return graph",
    "a parrot eats fruit and seeds, and it is said that a lorikeet drinks nectar " * 4,
    "nectar",
    "",
]


@pytest.fixture(scope="module")
def plain_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT with random weights that reads letters."""
    folder = tmp_path_factory.mktemp("encoders") / "plain"
    letters = [*"abcdefghijklmnopqrstuvwxyz():,"]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=128).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=128,
        initializer_range=0.2,
    )
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def sentence_model(plain_model: Path) -> Path:
    """The same encoder as a sentence-transformers model with mean pooling."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = plain_model.with_name("sentence")
    sentence_transformers.SentenceTransformer(str(plain_model), device="cpu").save_pretrained(str(folder))
    assert (folder / "modules.json").exists()
    return folder


def vectors_of(model: Path, *settings: str) -> np.ndarray:
    return normalize_rows(encoders.load_encoder(str(model), *settings)(TEXTS))


def test_a_tokenizer_with_dropout_gives_the_same_vectors_each_time(plain_model: Path, tmp_path: Path) -> None:
    shutil.copytree(plain_model, tmp_path / "random")
    letters = "abcdefghijklmnopqrstuvwxyz():,"
    vocabulary = {token: i for i, token in enumerate(["[PAD]", *letters, "it", "th"])}
    bpe = models.BPE(vocabulary, [("i", "t"), ("t", "h")], dropout=0.5)
    fast = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(bpe), pad_token="[PAD]", model_max_length=128)
    fast.save_pretrained(tmp_path / "random")
    encoder = encoders.load_encoder(str(tmp_path / "random"))
    texts = ["it is that with this it thinks"] * 9
    assert np.ptp(encoder(texts), axis=0).max() < 1e-4


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1)


@pytest.mark.parametrize("tokens", [16, 70, 10_000])
def test_vectors_are_each_texts_own_whatever_the_batches(
    tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(encoders.TOKENS_PER_BATCH, "cpu", tokens)
    shapes = []

    def tokenize(texts: list[str]) -> tuple[Tensor, Tensor]:
        lengths = torch.tensor([len(text) for text in texts])
        mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
        return mask * lengths[:, None], mask

    def vectors(ids: Tensor, mask: Tensor) -> Tensor:
        shapes.append(ids.shape)
        return torch.stack([ids.sum(1), mask.sum(1)], 1).float()

    texts = ["a" * n for n in (3, 40, 7, 40, 1, 33, 17)]
    found = encoders.encode(encoders.Network(tokenize, vectors, torch.device("cpu")), texts)
    assert found.tolist() == [[len(text) ** 2, len(text)] for text in texts]
    assert sum(batch for batch, _ in shapes) == len(texts)
    assert all(batch == 1 or batch * length <= tokens for batch, length in shapes)


def test_sentence_transformers_vectors(sentence_model: Path) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = normalize_rows(
        SentenceTransformer(str(sentence_model), device="cpu").encode(TEXTS, show_progress_bar=False)
    )
    ours = vectors_of(sentence_model)
    assert ours.shape == (5, 64)
    assert (cosines(ours, theirs) > 0.999).all()


@pytest.mark.parametrize(
    ("settings", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode": "weightedmean"}, None),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
    ],
)
def test_a_sentence_transformers_model_names_its_pooling(
    settings: dict[str, Any], pooling: str | None, sentence_model: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(sentence_model, tmp_path / "encoder"))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 64}')
    if pooling is None:
        with pytest.raises(InputError, match="pooling"):
            encoders.load_encoder(str(folder))
        return
    assert (cosines(vectors_of(folder), vectors_of(sentence_model)) < 0.99).any()
    long, longer = encoders.load_encoder(str(folder))(["nectar " * 20, "nectar " * 20 + "graph"])
    assert np.array_equal(long, longer)


def test_pooling() -> None:
    states, mask = torch.arange(6.0).reshape(1, 3, 2), torch.tensor([[1, 1, 0]])
    found = {name: encoders.pooled(states, mask, name).tolist()[0] for name in ("mean", "cls", "last")}
    assert found == {"mean": [1, 2], "cls": [0, 1], "last": [2, 3]}


def test_the_number_of_threads_does_not_change_the_bytes(
    plain_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker has all cores, a process of several has one: a task takes one thread in both."""
    seen = set()
    pooled = encoders.pooled

    def counted(*arguments: Any) -> Tensor:
        seen.add(torch.get_num_threads())
        return pooled(*arguments)

    monkeypatch.setattr(encoders, "pooled", counted)
    stored = documents_stage(tmp_path / "documents", (f"{i} {text}" for i, text in enumerate(TEXTS)))
    before = torch.get_num_threads()
    try:
        written = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            folder = tmp_path / f"{threads}"
            written.append(write_embeddings(folder, stored, str(plain_model), 0, "mean"))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert seen == {1}
    assert written[0].files == written[1].files


def test_positions_of_padding_hold_no_tokens(plain_model: Path, tmp_path: Path) -> None:
    """RoBERTa counts positions from that of padding, and here its tokenizer states no limit."""
    tokenizer = BertTokenizerFast(str(plain_model / "vocab.txt"))
    tokenizer.save_pretrained(tmp_path)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=34, pad_token_id=1, **sizes)
    RobertaModel(config).save_pretrained(tmp_path)
    encode = encoders.load_encoder(str(tmp_path))
    long, longer = encode(["nectar " * 600, "nectar " * 600 + "graph"])
    assert np.array_equal(long, longer)


@pytest.mark.parametrize("module", [None, "planted.Planted", "sentence_transformers.models.Router"])
def test_code_in_an_encoders_folder_is_not_run(
    module: str | None, plain_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what its settings name (None), nor its modules."""
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(plain_model, tmp_path / "encoder"))
    planted(folder, module or "planted.Planted")
    monkeypatch.syspath_prepend(folder)
    if module:
        with pytest.raises(InputError, match=module):
            encoders.load_encoder(str(folder))
    else:
        (folder / "modules.json").unlink()
        assert encoders.load_encoder(str(folder))(TEXTS).shape == (len(TEXTS), 64)
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda found: found.pop("encoder.layer.0.output.dense.bias"), "it lacks encoder.layer.0.output"),
        (lambda found: found.update({"encoder.layer.0.output.dense.bias": torch.zeros(3)}), "cannot be used"),
    ],
    ids=["without a tensor", "of another shape"],
)
def test_an_encoder_without_all_its_weights_is_refused(
    damage: Callable[[dict[str, Tensor]], object], reason: str, plain_model: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(plain_model, tmp_path / "encoder"))
    weights = load_file(folder / "model.safetensors")
    damage(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=reason):
        encoders.load_encoder(str(folder))


def test_workers_take_turns_on_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert encoders.worker_device() == encoders.pick_device()
    monkeypatch.setattr(encoders, "pick_device", lambda: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert encoders.worker_device() == torch.device("cuda", 0)
    for worker, index in (("0", 0), ("1", 1), ("2", 0)):
        monkeypatch.setenv(encoders.WORKER, worker)
        assert encoders.worker_device() == torch.device("cuda", index)
