"""All stages: the same bytes whatever the workers, kills and full disks; and nothing lost."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data.prepare import run_small, small
from loriini.data.jobs import tasks
from loriini.data.jobs.artifact import Artifact, load_artifact
from loriini.data.prepare.corpus import STAGES
from loriini.data.prepare.text.stored import stored_documents
from loriini.data.read.read import read_documents
from loriini.data.read.records import ReadOptions

Texts = tuple[str, ...]


def contents(out: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()
    }


def loaded(out: Path) -> dict[str, Artifact]:
    return {name: load_artifact(out / name) for name in STAGES}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    return small.write_texts(tmp_path_factory.mktemp("texts") / "texts")


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    small.shrink(monkeypatch.setattr)


@pytest.fixture(scope="module")
def expected(texts: Texts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus as one process makes it without interruption."""
    with pytest.MonkeyPatch.context() as patch:
        small.shrink(patch.setattr)
        return small.make(tmp_path_factory.mktemp("corpora") / "one", texts, 1).folder


def test_documents_equal_one_pass_over_all(texts: Texts, expected: Path) -> None:
    """The naive twin: a set of texts."""
    seen, wanted = set(), []
    for document in read_documents(texts, ReadOptions(on_error="skip")):
        if document.text not in seen:
            seen.add(document.text)
            wanted.append(document)
    stored = load_artifact(expected / "documents")
    assert list(stored_documents(stored)) == wanted
    assert stored.counts["duplicates"] == 2
    assert stored.counts["skipped"] == {"not valid JSON": 3}
    dropped = [json.loads(line) for line in stored.path("dropped.jsonl").read_text().splitlines()]
    repeats = [line["detail"] for line in dropped if line["reason"] == "exact duplicate"]
    assert [wanted[int(detail.removeprefix("repeats document "))].text for detail in repeats] == [
        "said before"
    ] * 2


def test_there_are_many_tasks(expected: Path) -> None:
    counts = {name: artifact.counts for name, artifact in loaded(expected).items()}
    assert len(counts["documents"]["shards"]) >= 6
    assert counts["neighbors"]["cells"] >= 4
    assert counts["instances"]["instances"] * 64 > 3 * small.SMALL[small.instances, "TOKENS_PER_TASK"]
    assert counts["duplicates"]["duplicates"] >= 3


BALANCES = (
    ("documents.documents_in", ("documents.documents", "documents.duplicates")),
    ("documents.documents", ("documents.shards",)),
    ("documents.documents", ("tokens.documents",)),
    ("documents.characters", ("tokens.characters_in",)),
    ("documents.documents", ("embeddings.documents",)),
    ("documents.documents", ("neighbors.documents",)),
    ("documents.documents", ("order.documents", "duplicates.duplicates", "heldout.documents")),
    ("order.documents", ("instances.documents_in",)),
    (
        "tokens.tokens",
        ("instances.tokens", "instances.tokens_left_out", "duplicates.tokens", "heldout.tokens"),
    ),
)
"""Counts that are the sum of others, each named `STAGE.COUNT`."""


@pytest.mark.parametrize(("total", "parts"), BALANCES)
def test_no_document_and_no_token_is_lost(expected: Path, total: str, parts: tuple[str, ...]) -> None:
    stages = loaded(expected)
    counts = {f"{stage}.{name}": n for stage, made in stages.items() for name, n in made.counts.items()}
    counts["documents.shards"] = sum(counts["documents.shards"])
    offsets = stages["tokens"].array("offsets.npy")
    for stage in ("duplicates", "heldout"):
        ids = stages[stage].array("ids.npy")
        counts[f"{stage}.tokens"] = int((offsets[ids + 1] - offsets[ids]).sum())
    assert counts[total] == sum(counts[part] for part in parts)


def files(out: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(out))


def kill_and_rerun(out: Path, texts: Texts, workers: int, moments: list[tuple[int, float]]) -> int:
    """Run all stages, killed at every moment, then to the end; returns how often it was killed.

    A moment is a number of files more than there were, and seconds after that.
    """
    command = [sys.executable, run_small.__file__, str(out), str(workers), *texts]
    killed = 0
    for more, seconds in [*moments, (1 << 30, 0)]:
        there = files(out)
        process = subprocess.Popen(command)
        while process.poll() is None and files(out) < there + more:
            time.sleep(0.005)
        time.sleep(seconds)
        process.kill() if more < 1 << 30 else None
        killed += process.wait() == -signal.SIGKILL
    assert process.returncode == 0
    return killed


def test_workers_and_kills_leave_the_same_bytes(texts: Texts, expected: Path, tmp_path: Path) -> None:
    assert kill_and_rerun(tmp_path / "corpus", texts, 2, [(45, 0.0)]) == 1
    assert contents(tmp_path / "corpus") == contents(expected)


@pytest.mark.drill
@pytest.mark.parametrize("workers", [1, 2])
def test_twenty_kills_leave_the_same_bytes(
    texts: Texts, expected: Path, tmp_path: Path, workers: int
) -> None:
    seed = random.randrange(1 << 32)
    moment = random.Random(seed)
    killed = corpora = 0
    while killed < 20:
        out = tmp_path / f"corpus-{corpora}"
        moments = [(moment.randint(1, 40), moment.uniform(0, 0.2)) for _ in range(5)]
        print(f"seed {seed}, corpus {corpora}: files and seconds to the kills {moments}")
        killed += kill_and_rerun(out, texts, workers, moments)
        assert contents(out) == contents(expected)
        corpora += 1


@pytest.mark.usefixtures("small_tasks")
def test_after_a_full_disk_the_rest_is_made_later(
    texts: Texts, expected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = [12]

    def write_json(path: Path, value: object) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        original(path, value)

    original = tasks.write_json
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "write_json", write_json)
        with pytest.raises(OSError, match="No space left"):
            small.make(tmp_path / "corpus", texts, 1)
    finished = len(list(tmp_path.glob("corpus/.*.parts/*/result.json")))
    assert finished > 3
    small.make(tmp_path / "corpus", texts, 1)
    assert contents(tmp_path / "corpus") == contents(expected)
