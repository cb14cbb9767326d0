"""What adds to Loriini: the option `--extension`, and a package's recipe and command by entry points."""

import json
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.calls import TRAIN, Captured, Made, assert_refused, call
from extensions import EXAMPLE, example_file, tables_restored
from loriini.compare.running import resuming


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with tables_restored():
        yield


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example as an installer leaves it: its modules, and the metadata that names its entry points."""
    site = tmp_path / "site"
    shutil.copytree(EXAMPLE / "loriini_example", site / "loriini_example")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    metadata = site / f"loriini_example-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    groups = [
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())])
        for group, entries in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(groups))
    monkeypatch.syspath_prepend(str(site))
    yield
    for name in [name for name in sys.modules if name.startswith("loriini_example")]:
        del sys.modules[name]


def test_a_design_of_an_extension_is_trained_resumed_and_evaluated(
    made: Made, tmp_path: Path, capsys: Captured
) -> None:
    own = ["--extension", example_file()]
    run = tmp_path / "run"
    train = ["train", "tiny-mixtral", "--corpus", made.corpus, "--out", run, *TRAIN]
    small = ["--steps", 2]
    with tables_restored():
        assert json.loads(call(capsys, "designs", "--json", *own).out)[-1]["name"] == "cosine"
        assert resuming(Path("run")) == ["train", "--resume", "run", f"--extension={example_file()}"]
        assert call(capsys, *train, "--routing", "cosine", *small, *own).code == 0
    assert_refused(call(capsys, "train", "--resume", run), "routing.scorer is 'cosine'")
    assert call(capsys, "train", "--resume", run, *own).code == 0
    assert call(capsys, "evaluate", run, "--documents", made.documents, *own).code == 0


def test_an_extension_that_does_not_load_is_an_error_in_a_line(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "wrong.py").write_text("import math\nmath.sqrt(1 / 0)")
    for name, reason in {
        tmp_path / "none.py": "none.py: no such Python file; check the path",
        tmp_path / "wrong.py": "wrong.py: cannot be executed (line 2, ZeroDivisionError: division by zero)",
        "no_such_module": "--extension no_such_module: cannot be imported (ModuleNotFoundError",
    }.items():
        assert_refused(call(capsys, "designs", "--extension", name), reason)


@pytest.mark.usefixtures("installed")
def test_a_packages_recipe_is_trained_and_its_command_run(
    made: Made, tmp_path: Path, capsys: Captured
) -> None:
    run = tmp_path / "run"
    assert "learned temperature" in " ".join(call(capsys, "--help").out.split())
    assert "digits" in call(capsys, "temperatures", "--help").out
    assert "tiny-cosine" in call(capsys, "recipes").out
    small = ("--steps", 3, "--length", 64)
    assert call(capsys, "train", "tiny-cosine", "--out", run, "--corpus", made.corpus, *small).code == 0
    settings = json.loads((run / "run.json").read_text())
    assert (settings["routing"]["scorer"], settings["routing"]["options"]["variance"]) == ("cosine", 0.01)
    shown = call(capsys, "temperatures", run, "--digits", 1)
    assert (shown.code, json.loads(shown.out)) == (0, [10.0, 10.0])
