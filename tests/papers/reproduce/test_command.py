"""The command: wrong input in a line, a list, a page from results alone, resumed runs."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cli.calls import Captured, assert_refused, call
from loriini.cli import main
from loriini.common.errors import WorkerDied
from loriini.compare.trainings import Training
from loriini.model.weights.loading import load_model
from loriini.papers.reproduce import job, measures
from loriini.papers.reproduce.claim import UNDECIDED
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS
from loriini.papers.reproduce.job import reproduce_items
from loriini.papers.reproduce.plan import Experiment
from loriini.papers.reproduce.results import DAMAGED, RESULTS, item_results
from loriini.papers.reproduce.scales import SCALES
from loriini.papers.reproduce.settings import ReproduceSettings
from loriini.train.records.metrics import METRICS, read_records
from reproduce.conftest import TEST, results_of
from together import CONTEXT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lory-fig33",), "lory-fig33: no item of the papers; the nearest is lory-fig3"),
        (("lory-fig3", "--scale", "huge"), "--scale huge: unknown; choose one of: tiny, small, paper"),
        (("lory-fig3", "--seeds", "0"), "--seeds is 0; it must be at least 1"),
        (("lory-fig3", "--jobs", "9999"), "--jobs 9999: give 1 to"),
        (("lory-fig3", "--text", "nowhere"), "nowhere"),
        ((), "give the items to reproduce, or all"),
        (("--list", "lory-fig3", "lory-fig4"), "--list trains nothing; leave this out"),
        (("--list", "--commands"), "--commands: --list trains nothing"),
        (("--list", "--seeds", "-3"), "--seeds is -3; it must be at least 1 and at most 100"),
        (("--list", "--text", "nowhere"), "--text: --list trains nothing"),
        (("lory-fig3", "--on-error", "skip"), "--on-error: is only for --text"),
        (("lory-fig3", "--scale", "paper"), "--scale paper needs --text"),
        (("lory-fig3", "--json"), "--json: is only for --list"),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str, capsys: Captured
) -> None:
    assert_refused(call(capsys, "reproduce", *arguments, "--out", tmp_path / "out"), message)
    assert not (tmp_path / "out").exists()


def test_all_items_are_listed_with_their_cost(capsys: Captured) -> None:
    rows = json.loads(call(capsys, "reproduce", "--list", "--json").out)
    assert [row["item"] for row in rows] == list(EXPERIMENTS)
    for row in rows:
        assert (bool(row["FLOPs"]), row["state"]) == (bool(row["trainings"]), "not measured here")


def test_at_the_papers_scale_text_fits_the_runs(text: Path, tmp_path: Path, capsys: Captured) -> None:
    """Both items need mixed text in random order, in instances of 4,096 and of 2,048 tokens."""
    items = ("lory-fig8", "aoe-table5", "--scale", "paper", "--text", text, "--seeds", "1")
    ended = call(capsys, "reproduce", *items, "--commands", "--out", tmp_path)
    assert (ended.code, len(ended.out.splitlines())) == (0, 4 + 4)


def test_a_damaged_results_file_is_named(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "lory-fig3" / RESULTS
    path.parent.mkdir()
    path.write_text("{")
    ended = call(capsys, "reproduce", "--list", "--out", tmp_path)
    assert_refused(ended, str(path), f"{DAMAGED}\n")


def test_finished_items_train_nothing_again(
    reproduced: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(trainings: list[Training], jobs: int) -> dict[Path, str]:
        assert all((training.folder / "model").exists() for training in trainings)
        return {}

    monkeypatch.setattr(job, "train_all", refuse)
    before = (reproduced / "lory-fig3" / "results.json").read_text()
    reproduce_items(ReproduceSettings(("lory-fig3",), text=(str(text),), seeds=1), reproduced)
    assert (reproduced / "lory-fig3" / "results.json").read_text() == before


def test_commands_train_what_is_left_anywhere(
    reproduced: Path, text: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = shutil.copytree(reproduced, tmp_path / "out")
    (cell, *_) = results_of(out, "lory-fig3")["cells"]
    shutil.rmtree(out / "runs" / cell["folder"])
    arguments = ["reproduce", "lory-fig3", "--text", str(text), "--seeds", "1", "--out", str(out)]
    main([*arguments, "--commands"])
    (line,) = capsys.readouterr().out.splitlines()
    program, *command = line.split()
    assert program == "loriini"
    main(command)
    main([*arguments, "--commands"])
    main(arguments)
    assert capsys.readouterr().out.splitlines()[1:] == [str(out / "report.html")]
    assert {each["state"] for each in results_of(out, "lory-fig3")["cells"]} == {"finished"}


@pytest.mark.parametrize("item", ["aoe-table1", "lory-table6"])
def test_a_model_is_loaded_once_for_all_of_its_measures(
    item: str, reproduced: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows without routers leave it unchanged for the others, as rows by prompt do for those by segment."""
    out, loaded = shutil.copytree(reproduced, tmp_path / "out"), []

    def load(folder: Path) -> Any:
        loaded.append(folder)
        return load_model(folder)

    monkeypatch.setattr(measures, "load_model", load)
    (before,) = results_of(out, item)["measured"].values()
    shutil.rmtree(out / "measures")
    arguments = ["reproduce", item, "--text", str(text), "--seeds", "1", "--out", str(out)]
    main(arguments)
    (after,) = results_of(out, item)["measured"].values()
    models = set(loaded)
    assert len(loaded) == len(models) < len(after)
    assert {row: found["perplexity"] for row, found in after.items()} == {
        row: found["perplexity"] for row, found in before.items()
    }
    assert len({found["perplexity"]["mean"] for found in after.values()}) == len(after)
    main(arguments)
    assert len(loaded) == len(models)
    for folder in models:
        os.utime(folder / "model" / "model.safetensors")  # another model
    main(arguments)
    assert len(loaded) == 2 * len(models)
    monkeypatch.setattr(measures, "VERSION", measures.VERSION + 1)
    main(arguments)
    assert len(loaded) == 3 * len(models)


def test_a_training_that_fails_leaves_the_other_items_written(
    reproduced: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(trainings: Sequence[Training], jobs: int) -> dict[Path, str]:
        return {training.folder: "out of luck" for training in trainings}

    out = shutil.copytree(reproduced, tmp_path / "out")
    shutil.rmtree(out / "runs")
    monkeypatch.setattr(job, "train_all", fail)
    settings = ReproduceSettings(("lory-fig3", "lory-table4"), text=(str(text),), seeds=1)
    with pytest.raises(WorkerDied, match=r"3 of \d+ trainings failed \(.*out of luck.*tries them again"):
        reproduce_items(settings, out)
    found = results_of(out, "lory-fig3")
    assert {cell["state"] for cell in found["cells"]} == {"failed"}
    assert "prefix routing with seed 0 failed and is left out of all means" in found["differs"]
    assert found["verdict"] == UNDECIDED
    overview = json.loads((out / "results.json").read_text())["items"]
    assert overview["lory-fig3"]["verdict"] == UNDECIDED


def test_an_error_of_measuring_leaves_the_other_items_written(
    reproduced: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """It is said when it occurs, and raised at the end."""

    def fail(row: Experiment, *rest: Any) -> dict[str, Any]:
        if row.item == "lory-fig3":
            raise KeyError("nothing there")
        return item_results(row, *rest)

    out = shutil.copytree(reproduced, tmp_path / "out")
    for item in ("lory-fig3", "lory-fig6"):
        (out / item / "results.json").unlink()
    monkeypatch.setattr(job, "item_results", fail)
    settings = ReproduceSettings(("lory-fig3", "lory-fig6"), text=(str(text),), seeds=1)
    with pytest.raises(KeyError, match="nothing there"):
        reproduce_items(settings, out)
    assert "measuring lory-fig3 failed (KeyError: 'nothing there')" in capsys.readouterr().err
    assert results_of(out, "lory-fig6")["verdict"] == UNDECIDED
    assert not (out / "lory-fig3" / "results.json").exists()


def reproduce_beside(item: str, text: Path, out: Path) -> None:
    SCALES["tiny"] = TEST
    main(["reproduce", item, "--text", str(text), "--seeds", "1", "--out", str(out)])


@pytest.mark.drill
def test_two_commands_in_one_folder_share_a_run(reproduced: Path, text: Path, tmp_path: Path) -> None:
    """Both need the same run in the same moment."""
    items = ("lory-fig6", "lory-fig11")
    trained = shutil.ignore_patterns("runs", "measures", "results.json")
    shutil.copytree(reproduced, tmp_path / "out", ignore=trained)
    arguments = [(item, text, tmp_path / "out") for item in items]
    commands = [CONTEXT.Process(target=reproduce_beside, args=each) for each in arguments]
    for command in commands:
        command.start()
    for command in commands:
        command.join()
    assert [command.exitcode for command in commands] == [0, 0]
    (run,) = (tmp_path / "out" / "runs").iterdir()
    assert [step["step"] for step in read_records(run / METRICS)] == [1, 2]
    assert set(json.loads((tmp_path / "out" / "results.json").read_text())["items"]) == set(items)
    cells = [cell for item in items for cell in results_of(tmp_path / "out", item)["cells"]]
    assert [cell["state"] for cell in cells] == ["finished", "finished"]
