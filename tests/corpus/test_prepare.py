import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loriini.corpus import instances, prepare
from loriini.corpus.prepare import Corpus, PrepareSettings, open_corpus, order_cosines, prepare_documents
from loriini.errors import InputError
from loriini.jobs.artifact import load_artifact
from loriini.jobs.lock import folder_lock
from loriini.sources.document import Document
from loriini.sources.dropped import OnDrop, ignore_dropped

SETTINGS = PrepareSettings(tokenizer="bpe:300", length=127, neighbors=8)
IDENTITY = {"topics": "1"}


def topics(drop: OnDrop = ignore_dropped) -> Iterator[Document]:
    """Forty documents on each of four topics with its own vocabulary, in turn; and one near-duplicate."""
    rng = np.random.default_rng(0)
    for i in range(160):
        words = [f"topic{i % 4}word{j}" for j in rng.integers(0, 30, 12)]
        yield Document(f"d{i}", " ".join(words), f"topic{i % 4}")
        if i == 80:
            yield Document("again", " ".join([*words, words[0]]), f"topic{i % 4}")


def made(out: Path, settings: PrepareSettings = SETTINGS) -> Corpus:
    return prepare_documents(out, topics, IDENTITY, settings)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return made(tmp_path_factory.mktemp("corpora") / "topics")


def times(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.rglob("*")}


def array_hashes(out: Path) -> dict[str, Any]:
    return {folder.name: load_artifact(folder).files for folder in sorted(out.iterdir()) if folder.is_dir()}


def test_every_document_and_token_is_accounted_for(corpus: Corpus) -> None:
    counts = {name: stage["counts"] for name, stage in corpus.manifest["stages"].items()}
    assert counts["documents"]["documents"] == counts["tokens"]["documents"] == 161
    assert counts["duplicates"]["duplicates"] == 1
    assert counts["order"]["documents"] == counts["instances"]["documents_in"] == 160
    left_out = np.load(load_artifact(corpus.folder / "duplicates").path("ids.npy"))
    lengths = np.diff(corpus.tokens.offsets)
    assert lengths.sum() == counts["tokens"]["tokens"]
    held = counts["instances"]
    assert held["tokens_in"] == lengths.sum() - lengths[left_out].sum()
    assert held["tokens_in"] == held["tokens"] + held["tokens_left_out"]
    assert corpus.instances.tokens_IL.size == held["tokens"]


def test_similar_documents_share_instances(corpus: Corpus) -> None:
    cosines = order_cosines(corpus)
    assert cosines == corpus.manifest["shared_instance_cosine"]
    assert cosines["similar"] > cosines["random"] + 0.2


def test_the_tokenizer_reads_the_instances(corpus: Corpus) -> None:
    from transformers import AutoTokenizer

    text = AutoTokenizer.from_pretrained(corpus.tokenizer).decode(corpus.instances.tokens_IL[0])
    assert text.count("topic") > 5
    assert (corpus.instances.tokens_IL == corpus.instances.eos_token_id).any()


def test_a_finished_corpus_is_left_as_it_is(corpus: Corpus) -> None:
    def unread(drop: OnDrop) -> Iterator[Document]:
        raise AssertionError("the documents are stored already")

    before = times(corpus.folder)
    prepare_documents(corpus.folder, unread, IDENTITY, replace(SETTINGS, workers=2))
    assert times(corpus.folder) == before


@pytest.mark.parametrize(
    "change", [{"length": 63}, {"tokenizer": "bpe:400"}, {"order": "papers"}, {"seed": 1}]
)
def test_other_settings_are_refused(corpus: Corpus, change: dict[str, Any]) -> None:
    before = times(corpus.folder)
    with pytest.raises(InputError, match="made with other settings"):
        made(corpus.folder, replace(SETTINGS, **change))
    assert times(corpus.folder) == before


@pytest.mark.parametrize(
    "change",
    [
        {"length": 0},
        {"neighbors": 0},
        {"workers": 0},
        {"seed": -1},
        {"seed": 1 << 31},
        {"order": "alphabetical"},
        {"on_error": "ignore"},
        {"pooling": "max"},
        {"encoder_backend": "onnx"},
    ],
)
def test_impossible_settings_are_refused_at_once(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(change))):
        replace(SETTINGS, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer": "bpe:few"}, "at least 257"),
        ({"tokenizer": "./absent"}, "no such tokenizer"),
        ({"encoder": "./absent"}, "no such folder"),
    ],
)
def test_what_is_absent_is_told_before_anything_is_read(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        made(tmp_path / "corpus", replace(SETTINGS, **change))
    assert not (tmp_path / "corpus").exists()


def test_a_folder_where_another_process_is_at_work_is_refused(tmp_path: Path) -> None:
    with folder_lock(tmp_path), pytest.raises(InputError, match="at work here"):
        made(tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_to_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to read"):
        prepare.prepare(tmp_path / "corpus", SETTINGS)


def test_other_documents_are_refused(corpus: Corpus) -> None:
    with pytest.raises(InputError, match=r"other inputs \(topics\)"):
        prepare_documents(corpus.folder, topics, {"topics": "2"}, SETTINGS)


@pytest.mark.parametrize("stage", ["write_embeddings", "write_order", "write_instances"])
def test_an_interrupted_run_goes_on(
    corpus: Corpus, tmp_path: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "interrupted"

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare, stage, interrupted)
        with pytest.raises(KeyboardInterrupt):
            made(out)
    with pytest.raises(InputError, match="no finished corpus"):
        open_corpus(out)
    made(out)
    assert array_hashes(out) == array_hashes(corpus.folder)


def test_a_stage_that_dies_in_the_middle_is_not_taken_for_whole(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "killed"

    def killed(*args: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(instances, "majority_domains", killed)  # instances.bin is written by then
        with pytest.raises(OSError, match="no space"):
            made(out)
    assert not (out / "instances").exists()
    made(out)
    assert array_hashes(out) == array_hashes(corpus.folder)
    assert not list(out.glob(".*"))


def test_random_and_similar_order_hold_the_same_documents(corpus: Corpus, tmp_path: Path) -> None:
    random = made(tmp_path / "random", replace(SETTINGS, order="random"))
    assert random.manifest["stages"]["duplicates"]["counts"]["duplicates"] > 0
    orders = [np.load(made_.folder / "order" / "order.npy") for made_ in (random, corpus)]
    assert not np.array_equal(*orders)
    assert np.array_equal(*map(np.sort, orders))


def test_another_corpus_tokenizer(corpus: Corpus, tmp_path: Path) -> None:
    heldout = prepare_documents(
        tmp_path / "heldout", topics, IDENTITY, replace(SETTINGS, order="random"), corpus.tokenizer
    )
    assert np.array_equal(heldout.tokens.tokens, corpus.tokens.tokens)


def test_from_files(tmp_path: Path) -> None:
    file = tmp_path / "topics.jsonl"
    file.write_text("".join(json.dumps({"body": d.text, "topic": d.domain}) + "\n" for d in topics()))
    settings = replace(SETTINGS, documents=(str(file),), text_field="body", domain_field="topic")
    corpus = prepare.prepare(tmp_path / "corpus", settings)
    assert corpus.instances.domain_names == ("topic0", "topic1", "topic2", "topic3")
    assert corpus.manifest["settings"]["text_field"] == "body"
    with pytest.raises(InputError, match="no such file"):
        prepare.prepare(tmp_path / "other", replace(settings, documents=(str(tmp_path / "absent"),)))
