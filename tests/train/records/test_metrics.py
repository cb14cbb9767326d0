"""The records of a run's steps: those of other shapes are refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from loriini.common.errors import InputError
from loriini.train.records.metrics import read_metrics


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("active", [1], "active is no array of numbers as in other steps"),
        ("active", [1.5, 1], "active is not of integers"),
        ("load", [[0.5, "x"], [0.5, 0.5]], "load is no array"),
        ("load", {"a": 1}, "load is no array"),
        ("gradient_norm", {}, "gradient_norm is no number"),
        ("gradient_norm", 10**400, "gradient_norm is no number"),
        ("load_entropy", [0.5, 101.0], "load_entropy is larger than can be"),
    ],
)
def test_records_of_other_shapes_are_refused(tmp_path: Path, field: str, value: Any, reason: str) -> None:
    good = {"step": 1, "experts": 2, "active": [3, 1], "load": [[0.5, 0.5], [1.0, 0.0]], "gradient_norm": 1}
    good["load_entropy"] = [0.5, 0.25]
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(good) + "\n" + json.dumps({**good, "experts": 1, "active": [1]}) + "\n")
    assert len(read_metrics(path)) == 2
    path.write_text(json.dumps(good) + "\n" + json.dumps({**good, "step": 2, field: value}) + "\n")
    with pytest.raises(InputError, match=f"line 2 is no step's record .{reason}"):
        read_metrics(path)
