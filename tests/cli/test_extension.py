"""The option `--extension`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.calls import TRAIN, Made, call
from extensions import example_file, tables_restored
from loriini.compare.running import resuming


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with tables_restored():
        yield


def test_a_design_of_an_extension_is_trained_resumed_and_evaluated(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--extension", example_file()]
    run = tmp_path / "run"
    train = ["train", "tiny-mixtral", "--corpus", made.corpus, "--out", run, *TRAIN]
    small = ["--steps", 2, "--warmup.dense_share", 0]
    with tables_restored():
        assert call(capsys, *train, "--routing", "cosine", *small, *own).code == 0
        assert json.loads((run / "run.json").read_text())["routing"]["options"]["temperature"] == 10
    refused = call(capsys, "train", "--resume", run)
    assert refused.code == 2
    assert "routing.scorer is 'cosine'" in refused.err
    assert call(capsys, "train", "--resume", run, *own).code == 0
    assert call(capsys, "evaluate", run, "--documents", made.documents, *own).code == 0


def test_designs_of_an_extension_are_listed_and_given_to_child_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = example_file()
    listed = json.loads(call(capsys, "designs", "--json", "--extension", file).out)
    assert listed[-1]["name"] == "cosine"
    assert resuming(Path("run")) == ["train", "--resume", "run", f"--extension={file}"]


def test_an_extension_that_does_not_load_is_an_error_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wrong.py").write_text("import math\nmath.sqrt(1 / 0)")
    (tmp_path / "words.py").write_text("no Python")
    for name, reason in {
        tmp_path / "none.py": "none.py: no such Python file; check the path",
        tmp_path / "wrong.py": "wrong.py: cannot be executed (line 2, ZeroDivisionError: division by zero)",
        tmp_path / "words.py": "words.py: cannot be executed (SyntaxError",
        "no_such_module": "--extension no_such_module: cannot be imported (ModuleNotFoundError",
    }.items():
        ended = call(capsys, "designs", "--extension", name)
        assert ended.code == 2
        assert reason in ended.err
        assert ended.err.count("\n") == 1
