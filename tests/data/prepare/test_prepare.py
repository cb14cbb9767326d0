import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data.prepare import topics
from loriini.common.atomic import is_unused
from loriini.common.errors import InputError
from loriini.data.jobs.artifact import load_artifact
from loriini.data.jobs.lock import folder_lock
from loriini.data.prepare import prepare
from loriini.data.prepare.corpus import Corpus
from loriini.data.prepare.prepare import prepare_documents
from loriini.data.read import streams
from loriini.data.read.document import Document
from loriini.data.read.records import OnDrop


def times(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.rglob("*")}


def array_hashes(out: Path) -> dict[str, Any]:
    return {folder.name: load_artifact(folder).files for folder in sorted(out.iterdir()) if folder.is_dir()}


def test_a_finished_corpus_is_left_as_it_is(corpus: Corpus) -> None:
    def unread(drop: OnDrop) -> Iterator[Document]:
        raise AssertionError("the documents are stored already")

    before = times(corpus.folder)
    prepare_documents(corpus.folder, unread, topics.IDENTITY, replace(topics.SETTINGS, workers=2))
    assert times(corpus.folder) == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"length": 63}, r"length 127, not 63\); choose another name or --out, with --reuse"),
        ({"order": "plain", "seed": 1}, "order similar, not plain, seed 0, not 1"),
        ({"heldout_share": 0.1}, "heldout_share 0.0, not 0.1"),
        ({"tokenizer": "bpe:400"}, "tokenizer"),
    ],
)
def test_other_settings_are_refused(corpus: Corpus, change: dict[str, Any], told: str) -> None:
    before = times(corpus.folder)
    with pytest.raises(InputError, match=rf"made with other settings \({told}"):
        topics.make(corpus.folder, replace(topics.SETTINGS, **change))
    assert times(corpus.folder) == before


def test_other_documents_are_refused(corpus: Corpus) -> None:
    told = rf"documents: .*other inputs \(topics\); choose .*--reuse {corpus.folder}"
    with pytest.raises(InputError, match=told):
        prepare_documents(corpus.folder, topics.documents, {"topics": "2"}, topics.SETTINGS)


def test_a_refused_corpus_that_lost_a_stage_is_left_as_it_is(corpus: Corpus, tmp_path: Path) -> None:
    """Building the stage would spoil it: the later ones would be refused after it."""
    out = tmp_path / "corpus"
    shutil.copytree(corpus.folder, out)
    shutil.rmtree(out / "embeddings")
    before = times(out)
    with pytest.raises(InputError, match=r"encoder lsa, not \./other"):
        topics.make(out, replace(topics.SETTINGS, encoder="./other"))
    assert times(out) == before
    topics.make(out)
    assert array_hashes(out) == array_hashes(corpus.folder)


@pytest.mark.parametrize("stage", ["documents", "order"])
def test_a_folder_of_a_stages_name_is_refused_before_anything_is_read(tmp_path: Path, stage: str) -> None:
    mine = tmp_path / stage / "mine" / "notes.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("a note " * 200)
    with pytest.raises(InputError, match=f"{stage}: holds files that are not a stage"):
        topics.make(tmp_path)
    with pytest.raises(InputError, match=r"lies inside the input .*notes\.txt, or holds it"):
        prepare.prepare(tmp_path, replace(topics.SETTINGS, documents=(str(mine),)))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]


def test_a_corpus_within_a_corpus_is_refused(corpus: Corpus) -> None:
    with pytest.raises(InputError, match=rf"--out {corpus.folder}: is a corpus itself"):
        topics.make(corpus.folder / "inner")
    assert not (corpus.folder / "inner").exists()


def test_a_folder_where_another_process_is_at_work_is_refused(tmp_path: Path) -> None:
    with folder_lock(tmp_path), pytest.raises(InputError, match="at work here"):
        topics.make(tmp_path)
    assert is_unused(tmp_path)


def test_texts_that_may_not_be_meant_for_training_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = "".join(json.dumps({"text": d.text}) + "\n" for d in topics.documents())
    for name in ("a.jsonl", "a.heldout.jsonl", "README"):
        (tmp_path / name).write_text(records if name.endswith("jsonl") else "about owls")
    for path, warned in ((tmp_path, True), (tmp_path / "a.heldout.jsonl", False)):
        settings = replace(topics.SETTINGS, documents=(str(path),), order="random")
        prepare.prepare(tmp_path.parent / f"corpus-{path.name}", settings)
        told = capsys.readouterr().err
        for warning in ("a.heldout.jsonl: among the documents", "README: next to records"):
            assert (warning in told) == warned


def test_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "topics.jsonl"
    records = [{"body": d.text, "topic": d.domain} for d in topics.documents()]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    settings = replace(
        topics.SETTINGS, documents=(str(file),), text_field="body", domain_field="topic", order="random"
    )
    corpus = prepare.prepare(tmp_path / "corpus", settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "_parts", None)  # a stored corpus's files are not cut again
        assert prepare.prepare(tmp_path / "corpus", settings).manifest == corpus.manifest
    assert corpus.instances.label_names == ("topic0", "topic1", "topic2", "topic3")
    assert corpus.manifest["settings"]["text_field"] == "body"
    assert "domain field" not in capsys.readouterr().err
    with pytest.raises(InputError, match=r"other settings \(domain_field topic, not topik\)"):
        prepare.prepare(tmp_path / "corpus", replace(settings, domain_field="topik"))
    assert "topik" not in capsys.readouterr().err  # a stored corpus's files are not opened for it
    prepare.prepare(tmp_path / "by topik", replace(settings, domain_field="topik"))
    assert capsys.readouterr().err.startswith("warning: the domain field 'topik' is in none of the first")
    with pytest.raises(InputError, match="no such file"):
        prepare.prepare(tmp_path / "other", replace(settings, documents=(str(tmp_path / "absent"),)))
