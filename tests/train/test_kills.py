"""`kill -9` at any moment: the run ends in the same bits as one that nothing disturbed."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from loriini.train.checkpoints.storage import CheckpointConfig
from loriini.train.config import TrainConfig
from loriini.train.loop import train
from loriini.train.records.metrics import METRICS
from runs import after_step, assert_same_bits, metrics, tiny_corpus, tiny_run
from together import CONTEXT

FURTHER = 3
"""Steps that a process may take while it waits to be killed."""


def run_of(kills: int) -> TrainConfig:
    """A run that saves after every step, so that most moments are moments of writing."""
    return replace(tiny_run(steps=(FURTHER + 2) * kills), checkpoint=CheckpointConfig(every=1))


def train_alone(run: TrainConfig, folder: Path) -> None:
    torch.set_num_threads(1)
    train(run, tiny_corpus(folder / "tokenizer"), folder / "run")


def train_until_killed(run: TrainConfig, folder: Path, step: int, delay: float) -> None:
    """Train and be killed `delay` seconds after a step, at the latest `FURTHER` steps on."""
    killer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL))
    with pytest.MonkeyPatch.context() as patch:
        after_step(patch, step, killer.start)
        after_step(patch, step + FURTHER, lambda: time.sleep(600))
        train_alone(run, folder)


def steps_of(out: Path) -> int:
    return len(metrics(out)) if (out / METRICS).exists() else 0


def kill_one(run: TrainConfig, folder: Path, chance: random.Random) -> None:
    """Start or resume, and kill soon after the next or the second next step."""
    step = steps_of(folder / "run") + chance.randint(1, 2)
    arguments = (run, folder, step, chance.uniform(0, 0.05))
    process = CONTEXT.Process(target=train_until_killed, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def assert_kills_change_nothing(kills: int, tmp_path: Path) -> None:
    run, chance = run_of(kills), random.Random(kills)
    train_alone(run, tmp_path / "whole")
    for _ in range(kills):
        kill_one(run, tmp_path / "killed", chance)
    train_alone(run, tmp_path / "killed")
    assert_same_bits(tmp_path / "killed/run", tmp_path / "whole/run")


def test_two_kills_change_nothing(tmp_path: Path) -> None:
    assert_kills_change_nothing(2, tmp_path)


@pytest.mark.drill
def test_twenty_kills_change_nothing(tmp_path: Path) -> None:
    assert_kills_change_nothing(20, tmp_path)


@pytest.mark.drill
def test_torchrun_restarts_a_job_whose_processes_are_killed(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "crash_drill.py"
    subprocess.run([sys.executable, script, "--out", tmp_path / "drill.json"], check=True, timeout=1200)
    drill = json.loads((tmp_path / "drill.json").read_text())
    assert sum("killed_rank" in event for event in drill["events"]) == 3
    assert drill["comparison"] == {
        "steps": 60,
        "steps_expected": 60,
        "largest_loss_difference": 0.0,
        "weights_bit_identical": True,
    }
