import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from data.prepare.arrays import stage_of
from loriini.common.errors import InputError
from loriini.data.jobs import tasks
from loriini.data.jobs.artifact import Artifact, build_artifact
from loriini.data.prepare.tokenized import instances
from loriini.data.prepare.tokenized.pieces import Pieces

EOS = 1


def tokens_artifact(folder: Path, documents: list[list[int]], domains: list[int]) -> Artifact:
    def write(temporary: Path) -> dict[str, object]:
        np.array([t for document in documents for t in document], np.uint16).tofile(temporary / "tokens.bin")
        np.save(temporary / "offsets.npy", np.cumsum([0, *map(len, documents)]))
        np.save(temporary / "domains.npy", np.array(domains, np.uint16))
        np.save(temporary / "bytes.npy", np.array([len(d) for d in documents], np.int64))
        return {
            "documents": len(documents),
            "tokens": sum(map(len, documents)),
            "dtype": "uint16",
            "vocab_size": 1000,
            "eos_token_id": EOS,
            "domains": ["birds", "code", "prose"],
        }

    return build_artifact(folder, {}, {}, write)


def order_artifact(folder: Path, order: list[int]) -> Artifact:
    return stage_of(folder, order=np.array(order, np.int64))


@pytest.mark.parametrize("tokens_per_task", [1, 40, 1 << 24])
def test_every_token_is_accounted_for(
    tokens_per_task: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tasks of one instance, of two, and in one task."""
    monkeypatch.setattr(instances, "TOKENS_PER_TASK", tokens_per_task)
    rng = np.random.default_rng(0)
    documents = [[*rng.integers(2, 1000, rng.integers(1, 40)).tolist(), EOS] for _ in range(50)]
    domains = rng.integers(0, 3, 50).tolist()
    order = rng.permutation(50)[:45].tolist()
    tokens = tokens_artifact(tmp_path / "tokens", documents, domains)
    artifact = instances.write_instances(
        tmp_path / "instances", tokens, order_artifact(tmp_path / "order", order), length=15
    )
    made = instances.open_instances(artifact)
    stream = [t for document in order for t in documents[document]]
    assert made.tokens_IL.ravel().tolist() == stream[: len(made) * 16]
    assert artifact.counts["tokens_in"] == len(stream) == len(made) * 16 + artifact.counts["tokens_left_out"]
    assert artifact.counts["tokens_left_out"] < 16
    assert artifact.counts["documents_in"] == 45
    assert artifact.counts["documents"] == len(np.unique(made.pieces.documents_P))
    assert (made.length, made.vocab_size, made.eos_token_id) == (15, 1000, EOS)
    assert made.label_names == ("birds", "code", "prose")
    assert made.read(np.array([2, 0])).dtype == np.int64
    for i in range(len(made)):
        begin, end = made.pieces.starts_I[i : i + 2]
        tally = np.bincount(
            np.array(domains)[made.pieces.documents_P[begin:end]], weights=made.pieces.lengths_P[begin:end]
        )
        assert made.domains_I[i] == made.labels(np.array([i])) == tally.argmax()


def test_files_do_not_depend_on_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents of no token, of a few, and of many instances."""
    lengths = [1, 0, 95, 3, 10, 0, 40, 2, 200, 7]
    tokens = tokens_artifact(
        tmp_path / "tokens", [[i * 7 + j for j in range(n)] for i, n in enumerate(lengths)], [0, 1] * 5
    )
    order = order_artifact(tmp_path / "order", [5, 8, 0, 1, 2, 9, 6, 4])
    manifests = set()
    for tokens_per_task in (20, 70, 1 << 24):
        monkeypatch.setattr(instances, "TOKENS_PER_TASK", tokens_per_task)
        made = instances.write_instances(tmp_path / str(tokens_per_task), tokens, order, length=9)
        manifests.add((made.folder / "manifest.json").read_text())
    assert len(manifests) == 1


def test_memory_does_not_grow_with_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, size in ((instances, "TOKENS_PER_TASK"), (tasks, "COPY_BYTES")):
        monkeypatch.setattr(module, size, 1 << 14)
    tokens = tokens_artifact(tmp_path / "tokens", [[5] * 100_000] * 10, [0] * 10)
    order = order_artifact(tmp_path / "order", list(range(10)))
    tracemalloc.start()
    try:
        made = instances.write_instances(tmp_path / "instances", tokens, order, length=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.counts["instances"] == 500_000
    assert peak < 4_000_000, "a number of 8 bytes for every instance"


def test_ids_outside_the_vocabulary_are_refused() -> None:
    nothing = Pieces(np.zeros(3, int), np.zeros(0, int), np.zeros(0, np.int32))
    ids = np.array([[1, 2, 3], [4, 5, 6]], np.uint16)
    domains = np.zeros(2, np.uint16)
    opened = instances.Instances(Path("stage"), ids, nothing, domains, ("a",), vocab_size=6, eos_token_id=0)
    assert opened.read(np.array([0])).tolist() == [[1, 2, 3]]
    with pytest.raises(InputError, match=r"stage/instances\.bin: holds the id 6, but the vocabulary has 6"):
        opened.read(np.array([1]))
