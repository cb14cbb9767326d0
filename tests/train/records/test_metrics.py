"""The records of a run's steps."""

import json
from pathlib import Path

import pytest

from loriini.common.errors import InputError
from loriini.train.records.metrics import TAIL, last_record, read_records, rewind


def test_a_line_cut_short_is_left_out_and_later_steps_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": step}) + "\n" for step in (1, 2, 3)) + '{"ste')
    assert [record["step"] for record in read_records(path)] == [1, 2, 3]
    rewind(path, 2)
    assert [record["step"] for record in read_records(path)] == [1, 2]


@pytest.mark.parametrize("line", ["no json", "[1]", "{}", '{"step": "a"}', '{"step": 1}'])
def test_what_is_no_steps_record_is_named_by_its_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "loss": 2}}\n{line}\n{{"step": 3, "loss": 2}}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl: line 2"):
        read_records(path, "loss")


def test_the_last_record_is_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert last_record(path) is None
    for written, step in (("", None), ('{"st', None), ('ep": 1}\n', 1), ('{"step": 2', 1), ("}\n", 2)):
        with open(path, "a") as file:
            file.write(written)
        assert (last_record(path) or {}).get("step") == step
    with open(path, "a") as file:
        file.write(json.dumps({"step": 3, "load": "x" * TAIL}) + "\n")
    assert last_record(path) is None  # longer than what is read
