"""Each process hashes the files that it wrote, and a share of those it resumes from; all find the same."""

import errno
import io
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from loriini.common.errors import InputError
from loriini.data.jobs.artifact import file_hashes
from loriini.train.checkpoints import state, storage
from loriini.train.checkpoints.state import read_state
from loriini.train.checkpoints.storage import CheckpointConfig
from loriini.train.config import TrainConfig
from loriini.train.corpora import TrainingCorpus
from loriini.train.loop import start_or_resume, train
from loriini.train.optimizer import OptimizerConfig
from loriini.train.upcycle import WarmupConfig
from runs import tiny_corpus, tiny_run
from together import in_one_group, job

IO_ERROR = str(OSError(errno.EIO, os.strerror(errno.EIO)))
FILES = [f"shard-0000{i}-model-00001-of-00001.safetensors" for i in (1, 2)]
STEPS = ["step-00000001", "step-00000002"]


def two_steps() -> TrainConfig:
    """A run that saves after each of two steps."""
    rate = OptimizerConfig(schedule="constant", warmup=0.0)
    kept, mixture = CheckpointConfig(every=1), WarmupConfig(dense_share=0.0)
    return tiny_run(steps=2, optimizer=rate, checkpoint=kept, warmup=mixture)


def corpus_in(folder: Path) -> TrainingCorpus:
    """The pattern, with the tokenizer that the processes share."""
    return tiny_corpus(folder / f"tokenizer of {os.getpid()}")


@contextmanager
def hashed_by(module: Any, before: Callable[[], object] = lambda: None) -> Iterator[list[str]]:
    """The files that a module lets this process hash, in sorted order, each time after `before`."""
    names: list[str] = []

    def record(folder: Path, those: Sequence[str]) -> dict[str, str]:
        before()
        names.extend(sorted(f"{folder.name}/{name}" for name in those))
        return file_hashes(folder, those)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "file_hashes", record)
        yield names


def saved(folder: Path, before: Callable[[], object] = lambda: None) -> list[str]:
    """Train; the files that this process hashed."""
    with hashed_by(storage, before) as names:
        train(two_steps(), corpus_in(folder), folder / "run")
    return names


def resumed(folder: Path, before: Callable[[], object] = lambda: None) -> tuple[Any, list[str], str]:
    """From which step, or why not; the files that this process hashed, and what it printed."""
    with hashed_by(state, before) as names, redirect_stderr(io.StringIO()) as printed:
        try:
            found: Any = start_or_resume(two_steps(), corpus_in(folder), folder / "run").progress.step
        except (InputError, OSError) as error:
            found = str(error)
    return found, names, printed.getvalue()


def second_fails() -> None:
    if dist.get_rank() == 1:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def second_dies() -> None:
    """Some time after the first process has written its file."""
    if dist.get_rank() == 1:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)


def failing_save(folder: Path) -> str:
    with pytest.raises(OSError, match="error") as raised:
        saved(folder, second_fails)
    return str(raised.value)


HARMED = {
    "nothing": [],
    "first": [(1, 0)],
    "second": [(1, 1)],
    "all": [(0, 0), (1, 1)],
    "unreadable": [],
    "one": [(1, 1)],
}
"""The files that are damaged, by the places of their checkpoint in STEPS and of their process."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def hashed_on_save(folder: Path) -> list[list[str]]:
    """What each of two processes hashed while it trained the run, of which harmed copies are then made."""
    (hashed,) = zip(*job(2, in_one_group, [(saved, folder / "nothing")]), strict=True)
    for name, files in HARMED.items():
        if name != "nothing":
            shutil.copytree(folder / "nothing", folder / name)
        for step, file in files:
            (folder / name / "run" / "checkpoints" / STEPS[step] / FILES[file]).write_bytes(b"short")
    return list(hashed)


@pytest.fixture(scope="module")
def two(folder: Path, hashed_on_save: list[list[str]]) -> dict[str, tuple[Any, ...]]:
    """What each of two processes returns, by the name of the task."""
    tasks = {name: (resumed, folder / name) for name in list(HARMED)[:4]}
    tasks["unreadable"] = (resumed, folder / "unreadable", second_fails)  # type: ignore[assignment]
    tasks["failing"] = (failing_save, folder / "failing")
    returned = job(2, in_one_group, list(tasks.values()))
    return dict(zip(tasks, zip(*returned, strict=True), strict=True))


def test_each_process_hashes_what_it_wrote(folder: Path, hashed_on_save: list[list[str]]) -> None:
    assert hashed_on_save == [[f".{step}.unfinished/{file}" for step in STEPS] for file in FILES]
    for step in STEPS:
        path = folder / "nothing" / "run" / "checkpoints" / step
        assert read_state(path)["sha256"] == file_hashes(path, FILES)


def test_each_process_checks_a_share_of_the_newest(two: dict[str, tuple[Any, ...]]) -> None:
    assert two["nothing"] == tuple((2, [f"{STEPS[1]}/{file}"], "") for file in FILES)


@pytest.mark.parametrize("process", [0, 1])
def test_damage_to_any_file_is_found_by_all(process: int, two: dict[str, tuple[Any, ...]]) -> None:
    first, second = two[["first", "second"][process]]
    assert [first[:2], second[:2]] == [(1, [f"{step}/{file}" for step in STEPS[::-1]]) for file in FILES]
    assert first[2].count("warning:") == 1
    assert f"{STEPS[1]}: damaged checkpoint passed over ({FILES[process]} does not match" in first[2]
    assert second[2] == ""


def test_where_none_is_intact_all_are_refused(two: dict[str, tuple[Any, ...]]) -> None:
    (first, *_), (second, *_) = two["all"]
    assert first == second
    assert f"no intact checkpoint ({STEPS[1]}: {FILES[1]} does not match its hash; {STEPS[0]}: " in first


def test_a_file_that_one_process_cannot_read_ends_all(two: dict[str, tuple[Any, ...]]) -> None:
    assert [found for found, *_ in two["unreadable"]] == [IO_ERROR] * 2


@pytest.mark.usefixtures("hashed_on_save")
def test_a_single_process_checks_all_files(folder: Path) -> None:
    """`test_mesh.py` resumes in more processes than there are files."""
    assert resumed(folder / "one")[:2] == (1, [f"{step}/{file}" for step in STEPS[::-1] for file in FILES])


def test_a_process_that_cannot_hash_leaves_no_checkpoint(
    folder: Path, two: dict[str, tuple[Any, ...]]
) -> None:
    assert two["failing"] == (IO_ERROR, IO_ERROR)
    assert not any((folder / "failing" / "run" / "checkpoints").iterdir())


def test_a_process_that_dies_leaves_no_checkpoint_that_looks_complete(tmp_path: Path) -> None:
    with pytest.raises((EOFError, AssertionError)):  # whichever process ends first
        job(2, in_one_group, [(saved, tmp_path, second_dies)])
    left = list((tmp_path / "run" / "checkpoints").iterdir())
    assert {path.name for path in left} <= {f".{STEPS[0]}.unfinished"}  # or none, where it died early
    assert {path.name for folder in left for path in folder.iterdir()} <= set(FILES)
