"""`kill -9` at any moment: the run ends in the same bits as one that nobody disturbed."""

import json
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from loriini.train.checkpoint import CheckpointConfig
from loriini.train.loop import train
from loriini.train.metrics import METRICS
from loriini.train.run import Run
from runs import metrics, tiny_corpus, tiny_run
from together import CONTEXT


def run_of(steps: int) -> Run:
    """A run that saves after every step, so that most moments are moments of writing."""
    return replace(tiny_run(steps=steps), checkpoint=CheckpointConfig(every=1))


def train_alone(run: Run, folder: Path) -> None:
    """What the process does that is killed."""
    torch.set_num_threads(1)
    train(run, tiny_corpus(folder / "tokenizer"), folder / "run")


def lines(out: Path) -> int:
    return len(metrics(out)) if (out / METRICS).exists() else 0


def kill_one(run: Run, folder: Path, chance: random.Random) -> int:
    """Start or go on, let up to two more steps be done, wait a little, kill; the steps that were done."""
    process = CONTEXT.Process(target=train_alone, args=(run, folder))
    process.start()
    wanted, deadline = lines(folder / "run") + chance.randint(0, 2), time.monotonic() + 60
    while process.is_alive() and lines(folder / "run") < wanted and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.05))
    process.kill()
    process.join()
    return lines(folder / "run")


def assert_kills_change_nothing(kills: int, tmp_path: Path) -> None:
    run, chance = run_of(steps=6 * kills), random.Random(kills)
    train_alone(run, tmp_path / "whole")
    done = [kill_one(run, tmp_path / "killed", chance) for _ in range(kills)]
    assert not (tmp_path / "killed/run/model").exists(), f"it was done before the last kill: {done}"
    assert max(done) > 0
    train_alone(run, tmp_path / "killed")
    out, whole = tmp_path / "killed/run", tmp_path / "whole/run"
    assert metrics(out) == metrics(whole)
    weights, expected = (load_file(path / "model/model.safetensors") for path in (out, whole))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], weight) for name, weight in expected.items())


def test_two_kills_change_nothing(tmp_path: Path) -> None:
    assert_kills_change_nothing(2, tmp_path)


@pytest.mark.drill
def test_twenty_kills_change_nothing(tmp_path: Path) -> None:
    assert_kills_change_nothing(20, tmp_path)


@pytest.mark.drill
def test_torchrun_starts_a_job_again_whose_processes_are_killed(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "crash_drill.py"
    subprocess.run([sys.executable, script, "--out", tmp_path / "drill.json"], check=True, timeout=1200)
    told = json.loads((tmp_path / "drill.json").read_text())
    assert sum("killed_rank" in event for event in told["events"]) == 3
    assert told["comparison"] == {
        "steps": 60,
        "steps_expected": 60,
        "largest_loss_difference": 0.0,
        "weights_bit_identical": True,
    }
