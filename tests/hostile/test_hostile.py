"""What other people's files can do: every row of the tables."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from hostile import fuzz, rows_arguments, rows_corpus, rows_foreign, rows_models, rows_prepare, rows_runs
from hostile.runner import Row, problems, run_row
from together import job

ROWS = [*rows_prepare.ROWS, *rows_corpus.ROWS, *rows_foreign.ROWS, *rows_arguments.ROWS]
OF_RUNS = [*rows_runs.ROWS, *rows_models.ROWS]
MUTATED = {
    "verify": ("inspect corpus --verify", ["corpus/**/*"]),
    "convert": ("convert corpus --to parquet --out there", ["corpus/**/*"]),
    "resume": ("train --resume run", ["run/run.json", "run/metrics.jsonl", "run/checkpoints/**/*"]),
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
