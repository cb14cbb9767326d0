"""What other people's files can do: every row of the tables."""

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from hostile import fuzz, rows_arguments, rows_corpus, rows_foreign, rows_models, rows_prepare, rows_runs
from hostile.runner import Row, problems, run_row

ROWS = [*rows_prepare.ROWS, *rows_corpus.ROWS, *rows_foreign.ROWS, *rows_arguments.ROWS]
OF_RUNS = [*rows_runs.ROWS, *rows_models.ROWS]


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


def test_names_are_unique() -> None:
    names = [row.name for row in [*ROWS, *OF_RUNS]]
    assert len(set(names)) == len(names)


@pytest.mark.drill
@pytest.mark.parametrize("form", fuzz.SEEDS)
def test_mutated_files_are_read_in_part_or_refused(form: str, tmp_path: Path) -> None:
    ended = fuzz.fuzz(form, 200, tmp_path)["ended"]
    assert not fuzz.bad(ended)
    assert ended.keys() & {"refused", "read in part"}
