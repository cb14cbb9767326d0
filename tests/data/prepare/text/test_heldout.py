import json
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data.prepare import topics
from data.prepare.arrays import documents_stage
from loriini.common.errors import InputError
from loriini.data.jobs.artifact import Artifact, load_artifact
from loriini.data.prepare.corpus import STAGES, Corpus
from loriini.data.prepare.text.heldout import HELDOUT_DOCUMENTS, write_heldout
from loriini.data.prepare.text.stored import stored_documents
from loriini.data.prepare.tokenized.tokenizer import train_bpe
from loriini.data.read.read import read_documents
from loriini.data.read.sampling import hash_fraction

SHARE = 0.3
SETTINGS = replace(topics.SETTINGS, heldout_share=SHARE)


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return topics.make(tmp_path_factory.mktemp("corpora") / "divided", SETTINGS)


def ids(corpus: Corpus, stage: str, file: str = "ids.npy") -> set[int]:
    return set(np.load(corpus.folder / stage / file).tolist())


def test_documents_are_in_training_or_held_out_or_near_duplicates(divided: Corpus) -> None:
    """The naive twin: every stored text by its hash."""
    stored = list(stored_documents(load_artifact(divided.folder / "documents")))
    of_share = {i for i, document in enumerate(stored) if hash_fraction(document.text) < SHARE}
    held, repeats = ids(divided, "heldout"), ids(divided, "duplicates")
    ordered = ids(divided, "order", "order.npy")
    assert held == of_share - repeats
    assert len(repeats) == 1
    assert ordered == set(range(len(stored))) - held - repeats
    assert 0.15 < len(held) / len(stored) < 0.45
    assert set(divided.instances.pieces.documents_P.tolist()) <= ordered


def test_reading_what_a_corpus_without_held_out_documents_holds_out_names_the_option(tmp_path: Path) -> None:
    nothing = tmp_path / "heldout" / HELDOUT_DOCUMENTS
    nothing.parent.mkdir()
    nothing.touch()
    with pytest.raises(InputError, match=f"{nothing}: no document found; .* --heldout-share"):
        list(read_documents([nothing]))


def test_what_is_held_out_is_read_as_documents(divided: Corpus) -> None:
    stored = list(stored_documents(load_artifact(divided.folder / "documents")))
    path = divided.folder / "heldout" / HELDOUT_DOCUMENTS
    read = list(read_documents([str(path)]))
    assert read == [stored[i] for i in sorted(ids(divided, "heldout"))]
    counts = load_artifact(divided.folder / "heldout").counts
    assert counts["documents"] == len(read)
    assert counts["characters"] == sum(len(document.text) for document in read)
    assert counts["domains"] == {
        name: sum(document.domain == name for document in read)
        for name in ("topic0", "topic1", "topic2", "topic3")
    }


def test_a_trained_tokenizer_has_not_seen_it(divided: Corpus) -> None:
    documents = load_artifact(divided.folder / "documents")
    without, with_all = (train_bpe(documents, 300, share).get_vocab() for share in (SHARE, 0.0))
    made = json.loads((divided.tokenizer / "tokenizer.json").read_text())["model"]["vocab"]
    assert made == dict(without)
    assert without != with_all


def test_a_task_holds_only_the_near_duplicates_of_its_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loriini.data.prepare.text.documents.SHARD_CHARACTERS", 12)
    monkeypatch.setattr("loriini.data.prepare.text.heldout.is_held_out", lambda text, share: text != "text 3")
    documents = documents_stage(tmp_path / "documents", (f"text {i}" for i in range(7)))
    assert documents.counts["shards"] == [2, 2, 2, 1]
    (tmp_path / "duplicates").mkdir()
    np.save(tmp_path / "duplicates" / "ids.npy", np.array([1, 4, *range(10**6, 2 * 10**6)]))
    duplicates = Artifact(tmp_path / "duplicates", {}, {}, {}, {})
    tracemalloc.start()
    try:
        held = write_heldout(tmp_path / "heldout", documents, duplicates, 0.5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.load(held.path("ids.npy")).tolist() == [0, 2, 5, 6]
    assert peak < 1 << 25  # with what copies files


def test_a_share_that_has_no_document_is_refused(tmp_path: Path) -> None:
    least = min(hash_fraction(document.text) for document in topics.documents())
    with pytest.raises(InputError, match="--heldout-share"):
        topics.make(tmp_path / "corpus", replace(SETTINGS, heldout_share=least))
    larger = topics.make(tmp_path / "larger", replace(SETTINGS, heldout_share=math.nextafter(least, 1)))
    assert len(ids(larger, "heldout")) == 1


def test_stages_that_would_be_the_same_are_reused(
    divided: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another length, order or share keeps all that came before."""
    changed = replace(SETTINGS, length=63, order="plain", reuse=str(divided.folder))
    reused = topics.make(tmp_path / "reused", changed)
    told = capsys.readouterr().err
    anew = topics.make(tmp_path / "anew", replace(changed, reuse=None))
    for stage in STAGES:
        made, expected = (load_artifact(folder / stage) for folder in (reused.folder, anew.folder))
        assert (made.settings, made.inputs, made.counts, made.files) == (
            *(expected.settings, expected.inputs, expected.counts, expected.files),
        )
        is_same = stage not in ("order", "instances")
        assert (f"{stage}: taken from {divided.folder}\n" in told) == is_same
        links = {(reused.folder / stage / file).stat().st_nlink for file in made.files}
        assert links == ({2} if is_same else {1})
    assert f"order: made anew; that of {divided.folder} has other settings (order)" in told
    assert reused.manifest == anew.manifest


def test_a_corpus_to_reuse_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--reuse .*absent: holds no documents of a corpus"):
        topics.make(tmp_path / "c", replace(SETTINGS, reuse=str(tmp_path / "absent")))
    assert not (tmp_path / "c").exists()
