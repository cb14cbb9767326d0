"""The command: wrong input in a line, a list, a page from results alone, resumed runs."""

import json
import shutil
from pathlib import Path

import pytest

from loriini.cli import main
from loriini.compare.running import Trial
from loriini.errors import InputError
from loriini.reproduce import job
from loriini.reproduce.findings import findings_page
from loriini.reproduce.items import FIRST
from loriini.reproduce.job import ReproduceSettings, reproduce_items


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lory-fig33",), "lory-fig33: no item of the papers; the nearest is lory-fig3"),
        (("lory-fig3", "--scale", "huge"), "--scale huge: unknown; choose one of: tiny, small, paper"),
        (("lory-fig3", "--seeds", "0"), "--seeds 0: give at least 1"),
        (("lory-fig3", "--jobs", "9999"), "--jobs 9999: give 1 to"),
        (("lory-fig3", "--text", "nowhere"), "nowhere"),
        ((), "give the items to reproduce, or all"),
        (("--page",), "no results of `loriini reproduce` here"),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *arguments, "--out", str(tmp_path / "out")])
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert message in line
    assert not (tmp_path / "out").exists()


def test_all_items_are_listed_with_their_cost(capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", "--list", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["item"] for row in rows] == list(FIRST)
    assert all(row["cost"].endswith("core-minutes") and row["state"] == "new" for row in rows)


def test_at_the_papers_scale_commands_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", "lory-fig4", "--scale", "paper", "--seeds", "1", "--out", str(tmp_path / "out")])
    lines = capsys.readouterr().out.splitlines()
    commands = [line for line in lines if not line.startswith("#")]
    assert len(commands) == 4
    assert sum("--order=random" in command for command in commands) == 2
    assert all("64 GPUs" in line and "hours" in line for line in lines if line.startswith("# 0.3b"))


@pytest.mark.parametrize("text", ["[]", "{", '{"items": [1]}', '{"items": {"lory-fig3": {}}}'])
def test_a_page_of_other_files_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "--page", "--out", str(tmp_path)])
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert "other.json" in line


def test_the_page_is_made_from_results_alone(
    reproduced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(reproduced / "results.json", tmp_path / "tiny.json")
    main(["reproduce", "--page", "--out", str(tmp_path)])
    page = capsys.readouterr().out
    assert page == findings_page(reproduced)
    found = json.loads((tmp_path / "tiny.json").read_text())["items"]
    for item in found.values():
        assert item["finding"] in page
        assert item["sentence"] in page


def test_finished_items_train_nothing_again(
    reproduced: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(trials: list[Trial], jobs: int, ended: object) -> dict[Path, str]:
        assert all((trial.folder / "model").exists() for trial in trials)
        return {}

    monkeypatch.setattr(job, "train_trials", refuse)
    before = (reproduced / "lory-fig3" / "results.json").read_text()
    reproduce_items(ReproduceSettings(("lory-fig3",), text=(str(text),), seeds=1), reproduced)
    assert (reproduced / "lory-fig3" / "results.json").read_text() == before


def test_another_scale_needs_another_folder(reproduced: Path, text: Path) -> None:
    settings = ReproduceSettings(("lory-fig3",), scale="small", text=(str(text),))
    with pytest.raises(InputError, match="made with another scale; choose another --out"):
        reproduce_items(settings, reproduced)


def test_the_published_page_is_made_from_the_committed_results() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "findings.md").read_text(encoding="utf-8")
    assert page == findings_page(root / "benchmarks" / "results" / "reproduce")
