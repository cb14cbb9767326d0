"""Cells as processes: resumed, interrupted, failing and diverging; most with a stand-in for training."""

import os
import re
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from compare.conftest import overrides
from compare.standin import run_instead
from loriini.cli import main
from loriini.common import progress
from loriini.common.errors import InputError
from loriini.common.hardware import JOBS_HERE
from loriini.common.signals import Interrupted
from loriini.compare import running
from loriini.compare.grid import make_trainings
from loriini.compare.running import train_all, training_commands
from loriini.compare.trainings import Training, with_folders
from loriini.estimate.choice import memory_here
from loriini.recipes import find_recipe
from loriini.train.overrides.apply import override
from loriini.train.records.metrics import METRICS, read_records
from runs import prepared

STEP = '{"step": 1, "loss": 2.5, "tokens": 64, "tokens_per_second": 32.0, "skipped": %s}\n'
FINISH = f"""
import os
open('{METRICS}', 'w').write('''{STEP % "false"}''')
os.mkdir('unfinished')
open('unfinished/config.json', 'w').write('{{}}')
open('unfinished/tokenizer_config.json', 'w').write('{{}}')
open('unfinished/model.safetensors', 'wb').write((2).to_bytes(8, 'little') + b'{{}}')
os.rename('unfinished', 'model')
"""
AT_WORK = f"""
import time
open('{METRICS}', 'w').write('{STEP.replace('"step": 1', '"step": 3').strip() % "false"}' + chr(10))
time.sleep(0.5)
{FINISH}
"""
DIVERGE = f"open('{METRICS}', 'w').write('''{STEP % 'true'}''' * 10); raise SystemExit(2)"
FAIL = "print('loriini: no luck today\\n'); raise SystemExit(3)"
KILLED = "import os; print('lory 12/3,000 loss 2.5', flush=True); os.kill(os.getpid(), 9)"
SAVE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (open('saved', 'w').close(), sys.exit(130)))
open('started', 'w').close()
time.sleep(60)
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("compare") / "corpus", length=32).folder


def trainings(corpus: Path, out: Path, designs: tuple[str, ...] = ("dense", "lory")) -> list[Training]:
    base = replace(find_recipe("tiny"), corpus=(corpus,))
    joined = [f"{name}={value}" for name, value in zip(overrides()[::2], overrides()[1::2], strict=True)]
    return with_folders(make_trainings(designs, base, joined, {}, seeds=1), out)


@contextmanager
def training_is(*programs: str) -> Iterator[list[str]]:
    """Run a program in the cell's folder instead of training, one after the other; yields the OMP threads."""
    waiting, threads = list(programs), list[str]()

    def process(target: Callable[..., None], args: tuple[Any, ...]) -> BaseProcess:
        arguments, _, environment = args
        assert arguments[:2] == ["train", "--resume"]
        threads.append(environment["OMP_NUM_THREADS"])
        return real(target=run_instead, args=(waiting.pop(0), target, *args))

    real = get_context("forkserver").Process
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(get_context("forkserver"), "Process", process)
        patch.setattr(running, "available_cores", lambda: 4)
        patch.delenv("OMP_NUM_THREADS", raising=False)
        yield threads


def test_a_cell_is_trained_by_the_command_and_left_when_it_is_done(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "available_cores", lambda: 1)  # as many threads as these tests have
    (training,) = trainings(corpus, tmp_path, ("lory",))
    assert training.state == "new"
    assert train_all([training]) == {}
    assert training.state == "finished"
    assert len(read_records(training.folder / METRICS)) == training.run.steps
    assert re.search(r"lory, seed 0: finished, loss \d\.\d+, \d+ s \(0 left\)", capsys.readouterr().err)
    with training_is():  # nothing is started
        assert train_all([training]) == {}
    (fresh,) = trainings(corpus, tmp_path / "fresh", ("lory",))
    (command,) = training_commands([fresh])
    main(shlex.split(command)[1:])
    for name in ("model/model.safetensors", "model/config.json"):
        assert (training.folder / name).read_bytes() == (fresh.folder / name).read_bytes()
    losses = [[step["loss"] for step in read_records(each.folder / METRICS)] for each in (training, fresh)]
    assert losses[0] == losses[1]


def test_the_others_go_on_when_one_fails_or_diverges(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three = trainings(corpus, tmp_path, ("dense", "lory", "prefix"))
    with training_is(FAIL, DIVERGE, FINISH) as threads:
        failures = train_all(three, jobs=1)
    assert failures == {three[0].folder: "loriini: no luck today"}
    assert [training.state for training in three] == ["started", "diverged", "finished"]
    lines = [line for line in capsys.readouterr().err.splitlines() if " left" in line and "cells" not in line]
    assert lines == [
        "warning: dense, seed 0 failed, 2 left: loriini: no luck today",
        "lory, seed 0: diverged after 10 steps (1 left)",
        "prefix, seed 0: finished, loss 2.500, 2 s (0 left)",
    ]
    assert threads == ["4", "4", "4"]
    with training_is(FINISH):  # only what failed is tried again
        assert train_all(three, jobs=2) == {}
    more = override(three[1].run, ["--guard.max_skips=20"])
    with training_is(FINISH):  # and what diverged, once it may skip more steps
        assert train_all([replace(three[1], run=more)]) == {}


def test_jobs_share_the_cores(corpus: Path, tmp_path: Path) -> None:
    with training_is(FINISH, FINISH) as threads:
        train_all(trainings(corpus, tmp_path), jobs=2)
        assert threads == ["2", "2"]
        with pytest.raises(InputError, match=r"--jobs 5: give 1 to 4, the cores"):
            train_all([], jobs=5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_saves_every_cell(corpus: Path, tmp_path: Path, number: int) -> None:
    two = trainings(corpus, tmp_path)

    def interrupt_when_started() -> None:
        while not all((training.folder / "started").exists() for training in two):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    with training_is(SAVE, SAVE):
        threading.Thread(target=interrupt_when_started).start()
        with pytest.raises(Interrupted, match=r"0 of 2 trainings ended.* to resume"):
            train_all(two, jobs=2)
    assert all((training.folder / "saved").exists() for training in two)


def test_every_training_at_work_shows_its_steps(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.05)
    with training_is(AT_WORK, AT_WORK):
        train_all(trainings(corpus, tmp_path), jobs=2)
    err = capsys.readouterr().err
    for name in ("dense", "lory"):
        assert re.search(rf"^{name}, seed 0  3/12  loss 2\.500  32 tokens/s  0:\d\d:\d\d", err, re.MULTILINE)
    assert re.search(r"^trainings  2/2 ", err, re.MULTILINE)


def test_a_killed_cell_names_the_signal_not_its_progress(corpus: Path, tmp_path: Path) -> None:
    (training,) = trainings(corpus, tmp_path, ("lory",))
    with training_is(KILLED):
        assert train_all([training]) == {training.folder: "killed by signal 9; is there enough memory?"}


def test_jobs_take_the_gpus_in_turn_and_share_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    places = [running.environment_of(slot, 3) for slot in range(3)]
    assert [place["CUDA_VISIBLE_DEVICES"] for place in places] == ["4", "6", "4"]
    assert {place[JOBS_HERE] for place in places} == {"2"}
    whole = memory_here()
    monkeypatch.setenv(JOBS_HERE, "2")
    assert memory_here() == whole / 2
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert running.environment_of(1, 3) == {"OMP_NUM_THREADS": str(running.threads_of(3)), JOBS_HERE: "3"}
