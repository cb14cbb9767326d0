"""The findings: rates chosen by training loss alone, scored with other seeds, pages made of the results."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tinybench import script, write_text

from compare.conftest import all_trained_here
from loriini.compare.trainings import Training
from quickstart.conftest import shrink

TABLES = {"RATES": ("4e-3", "8e-3"), "SEEDS": (100, 101), "NEW_INSTANCES": 4}
"""What the script has in these tests."""


def run_findings(folder: Path) -> list[str]:
    """Run the script on little text, its trainings in this process; returns the names of those trained."""
    findings, trained = script("findings"), list[str]()
    questions = {"mixtures": findings.designs("dense", "lory"), "prompt": findings.QUESTIONS["prompt"]}

    def train_here(trainings: Sequence[Training], jobs: int) -> dict[Path, str]:
        trained.extend(training.name for training in trainings if not training.is_done)
        return all_trained_here(trainings)

    text, other = write_text(folder), folder / "other.jsonl"
    other.write_text(text[-1].read_text().replace('"tales"', '"other"'))
    inputs = ("--text", *map(str, text), "--unlike", str(other))
    where = ("--out", str(folder / "work"), "--results", str(folder / "findings.json"))
    sizes = ("--steps=3", "--rate-steps=2", "--jobs=1", "--instances=2", "--characters=400000")
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        for name, value in {**TABLES, "QUESTIONS": questions, "train_all": train_here}.items():
            patch.setattr(findings, name, value)
        patch.setattr(sys, "argv", ["findings.py", *where, *sizes, *inputs])
        findings.main()
    return trained


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study of dense and Lory, which a second run leaves as it is."""
    folder = tmp_path_factory.mktemp("findings")
    assert {name.split(",")[0] for name in run_findings(folder)} == {"dense", "lory"}
    assert run_findings(folder) == []
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "findings.json").read_text())
    return found


def test_the_rate_is_that_of_the_lowest_training_loss_and_the_seeds_are_others(
    results: Mapping[str, Any], folder: Path
) -> None:
    runs = [json.loads(path.read_text()) for path in folder.glob("work/runs/*/run.json")]
    for name in ("dense", "lory"):
        tried = results["tried"][name]
        best = min(tried, key=tried.__getitem__)
        assert results["variants"][name]["rate"] == best
        assert float(best) not in (min(map(float, tried)), max(map(float, tried)))
        reported = {run["optimizer"]["learning_rate"] for run in runs if run["name"] == name and run["seed"]}
        assert reported == {float(best)}
        assert results["variants"][name]["seeds"].keys() == {"100", "101"}


def test_seeds_of_another_rate_are_replaced(results: dict[str, Any], folder: Path) -> None:
    other = results["variants"]["lory"] | {"rate": "1", "seeds": {"100": {}, "101": {}}}
    stale = results | {"variants": results["variants"] | {"lory": other}}
    (folder / "findings.json").write_text(json.dumps(stale))
    run_findings(folder)
    assert json.loads((folder / "findings.json").read_text())["variants"] == results["variants"]


def test_wider_designs_have_the_active_size_of_the_wider_dense_model() -> None:
    variants = script("findings").QUESTIONS["width-128"]
    active = {v.design: v.run(steps=1, seed=0).config(2048).parameters()[1] for v in variants}
    assert active == pytest.approx(dict.fromkeys(active, active["dense"]), rel=0.02)


def test_rates_are_tried_beyond_the_best_one_while_it_is_at_the_edge() -> None:
    rates_to_try = script("findings").rates_to_try
    assert rates_to_try({"2e-3": 1.0, "4e-3": 2.0}) == ["0.001"]
    assert rates_to_try({"2e-3": 2.0, "4e-3": 1.0}) == ["0.008"]
    assert rates_to_try({"2e-3": 2.0, "4e-3": 1.0, "8e-3": None}) == []


def test_tables_and_pictures_are_made_of_the_results(results: Mapping[str, Any]) -> None:
    page = script("findings_page")
    names = [*page.TABLES]
    text = page.with_tables("".join(f"<!-- table {name} -->\nold\n<!-- end -->\n" for name in names), results)
    assert "old" not in text
    assert "| lory | dense |" not in text  # one baseline is no column
    row = page.compare(results, "lory", "dense")
    assert f" | {row['loss']:.3f} | " in text
    assert f" | {row['perplexity']['all']:.1f} | " in text
    assert "- lory relative to dense: perplexity " in text
    assert page.with_tables(text, results) == text
    drawn = dict(
        page.pictures("![](pictures/findings_rates.svg) ![](pictures/findings_designs.svg)", results)
    )
    assert drawn.keys() == {"findings_rates.svg", "findings_designs.svg"}
    assert all(svg.startswith("<svg") and "currentColor" not in svg for svg in drawn.values())


def test_the_pages_are_made_of_the_committed_results() -> None:
    page = script("findings_page")
    results = page.read_results(page.RESULTS)
    for path in page.PAGES:
        assert page.with_tables(path.read_text("utf-8"), results) == path.read_text("utf-8")
