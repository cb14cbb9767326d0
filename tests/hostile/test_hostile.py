"""What other people's files and machines without room can do: every row of the tables, and full disks."""

import json
import random
import resource
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from hostile import fuzz, rows_arguments, rows_corpus, rows_foreign, rows_models, rows_prepare, rows_runs
from hostile.runner import Row, call, problems, run_row
from loriini.train.checkpoints.state import problem_of
from together import job

ROWS = [*rows_prepare.ROWS, *rows_corpus.ROWS, *rows_foreign.ROWS, *rows_arguments.ROWS]
OF_RUNS = [*rows_runs.ROWS, *rows_models.ROWS]
RESUME = "train --resume run"
LARGE = "train tiny-dense --corpus corpus --out there --steps 1 --length 64 --model.hidden_size 2048"
MUTATED = {
    "verify": ("inspect corpus --verify", ["corpus/**/*"]),
    "convert": ("convert corpus --to parquet --out there", ["corpus/**/*"]),
    "resume": (RESUME, ["run/run.json", "run/metrics.jsonl", "run/checkpoints/**/*"]),
    "train": (f"{rows_arguments.TRAIN} --out there", ["corpus/**/*"]),
    "evaluate": (
        "evaluate run --documents documents.jsonl",
        ["run/model/*", "run/run.json", "documents.jsonl"],
    ),
    "generate": ("generate run --prompt birds --max-new-tokens 4 --greedy", ["run/model/*"]),
    "export": ("export run --to hf --step 2 --out there", ["run/**/*"]),
    "compare": ("compare run twin --out there", ["run/run.json", "*/metrics.jsonl", "run/model/config.json"]),
}
"""A command, and the files of which one is changed."""


def parameters(rows: list[Row]) -> list[ParameterSet]:
    return [pytest.param(row, id=row.name, marks=[pytest.mark.drill] if row.drill else []) for row in rows]


@pytest.mark.parametrize("row", parameters(OF_RUNS))
def test_a_row_of_runs(row: Row, run_template: Path, tmp_path: Path) -> None:
    found = problems(row, run_row(row, run_template, tmp_path / "here"))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("row", parameters(ROWS))
def test_a_row(row: Row, template: Path, tmp_path: Path) -> None:
    found = problems(row, run_row(row, template, tmp_path / "here"))
    assert not found, "\n".join(found)


@pytest.mark.drill
@pytest.mark.parametrize("command", MUTATED)
def test_mutated_folders_are_read_or_refused(command: str, run_template: Path, tmp_path: Path) -> None:
    """Files of a corpus, of a run and of its model with some of their bytes changed, one at a time."""
    line, patterns = MUTATED[command]
    files = sorted({path for pattern in patterns for path in run_template.glob(pattern) if path.is_file()})
    for seed in range(25):
        path = random.Random(f"{command} {seed}").choice(files).relative_to(run_template)

        def harm(folder: Path, path: Path = path, seed: int = seed) -> None:
            if command == "resume":
                rows_runs.unfinished(folder)
            (folder / path).write_bytes(fuzz.mutated((folder / path).read_bytes(), seed))

        row = Row(f"{command} {seed}", line, "loriini", harm)
        ended = run_row(row, run_template, tmp_path / str(seed))
        found = problems(replace(row, line="", code=0) if ended.code == 0 else row, ended)
        assert not found, f"{path}, seed {seed}:\n" + "\n".join(found)
        shutil.rmtree(tmp_path / str(seed))


def test_names_are_unique() -> None:
    names = [row.name for row in [*ROWS, *OF_RUNS]]
    assert len(set(names)) == len(names)


@pytest.mark.drill
@pytest.mark.parametrize("form", fuzz.SEEDS)
def test_mutated_files_are_read_in_part_or_refused(form: str, tmp_path: Path) -> None:
    (ended,) = job(1, fuzz.read_all, form, 200, tmp_path)
    assert ended.keys() <= {"read", "read in part", "refused"}
    assert ended.keys() & {"read in part", "refused"}


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
