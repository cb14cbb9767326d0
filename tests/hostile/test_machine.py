"""A machine without room: a command ends in one line, and what was saved stays whole."""

import json
import resource
import shutil
from functools import partial
from pathlib import Path

import pytest

from hostile.runner import Row, call, problems, run_row
from loriini.train.checkpoints.state import problem_of

RESUME = "train --resume run"
LARGE = "train tiny-dense --corpus corpus --out there --steps 1 --length 64 --model.hidden_size 2048"


def only(what: int, more: int, folder: Path) -> None:
    """Limit what this process may use to `more` bytes above what it does now."""
    held = int(Path("/proc/self/statm").read_text().split()[0 if what == resource.RLIMIT_AS else 5])
    resource.setrlimit(what, (held * resource.getpagesize() + more,) * 2)


@pytest.mark.parametrize("what", [resource.RLIMIT_AS, resource.RLIMIT_DATA], ids=["ulimit -v", "ulimit -d"])
@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the memory in use is read in Linux's /proc"
)
def test_too_little_memory(what: int, template: Path, tmp_path: Path) -> None:
    row = Row("", LARGE, "loriini: out of memory; lower", within=partial(only, what, 1 << 27))
    assert not problems(row, run_row(row, template, tmp_path / "here"))


def small_files(folder: Path) -> None:
    """Every write beyond the first 64 KiB of a file fails, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))


def test_a_full_disk_leaves_the_last_checkpoint_whole(run_template: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_template, tmp_path / "here"))
    first, second = (folder / "run" / "checkpoints" / f"step-{step:08d}" for step in (2, 4))
    shutil.rmtree(folder / "run" / "model")
    shutil.rmtree(second)
    ended = call(RESUME, folder, within=small_files)
    row = Row("", RESUME, "(File too large|disk).*free some space")
    assert not problems(row, ended)
    assert problem_of(first) is None
    assert not second.exists()
    ended = call(RESUME, folder)
    assert ended.code == 0, ended.err
    steps = [json.loads(line)["step"] for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4]
