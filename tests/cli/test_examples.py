"""The example of a package that adds to Loriini: its recipe and its command, found by entry points."""

import json
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.calls import Made, assert_refused, call
from extensions import EXAMPLE, tables_restored


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
    with tables_restored():
        yield
    for name in [name for name in sys.modules if name.startswith("loriini_example")]:
        del sys.modules[name]


@pytest.mark.usefixtures("installed")
def test_its_recipe_is_trained_and_its_command_run(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert "learned temperature" in " ".join(call(capsys, "--help").out.split())
    assert "digits" in call(capsys, "temperatures", "--help").out
    assert "tiny-cosine" in call(capsys, "recipes").out
    small = ("--steps", 3, "--length", 64)
    trained = call(capsys, "train", "tiny-cosine", "--out", run, "--corpus", made.corpus, *small)
    assert trained.code == 0, trained.err
    settings = json.loads((run / "run.json").read_text())
    assert (settings["routing"]["scorer"], settings["routing"]["options"]["variance"]) == ("cosine", 0.01)
    shown = call(capsys, "temperatures", run, "--digits", 1)
    assert (shown.code, json.loads(shown.out)) == (0, [10.0, 10.0])
    assert_refused(call(capsys, "temperatures", tmp_path), str(tmp_path))
    own = ("--extension", "loriini_example.router")
    assert call(capsys, "evaluate", run, "--documents", made.documents, *own).code == 0
