"""The findings page: from results alone, with pictures, and the same as the published one."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from loriini.cli import main
from loriini.reproduce.findings import (
    MOST_CLAIMS,
    MOST_PICTURES,
    digest,
    findings_page,
    picture,
    read_scales,
    shown_charts,
    write_findings,
)
from loriini.reproduce.results import read_items

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def page(reproduced: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "findings.md"
    main(["reproduce", "--page", str(path), "--out", str(reproduced)])
    return path


def items_of(out: Path) -> dict[str, Any]:
    return read_items(out)


def test_the_page_is_made_from_results_alone(reproduced: Path, page: Path, tmp_path: Path) -> None:
    items = items_of(reproduced)
    (tmp_path / "tiny.json").write_text(json.dumps({"items": items}))
    assert page.read_text() == findings_page(read_scales(tmp_path), "findings")
    for item in items.values():
        assert item["finding"] in page.read_text()
        assert item["sentence"] in page.read_text()
        assert item["date"] in page.read_text()


def test_every_picture_of_the_page_is_drawn(reproduced: Path, page: Path) -> None:
    shown = re.findall(r"\]\(findings/(.*?)\)", page.read_text())
    assert sorted(shown) == sorted(path.name for path in (page.parent / "findings").iterdir())
    charts = [len(item["charts"]) for item in items_of(reproduced).values()]
    assert len(shown) == sum(min(MOST_PICTURES, n) for n in charts)
    assert max(charts) == MOST_PICTURES
    for name in shown:
        assert ElementTree.parse(page.parent / "findings" / name).getroot().tag.endswith("svg")


def test_pictures_of_other_results_are_removed(reproduced: Path, tmp_path: Path) -> None:
    write_findings(reproduced, tmp_path / "page.md")
    (tmp_path / "page" / "old.svg").write_text("")
    names = {path.name for path in (tmp_path / "page").iterdir()}
    write_findings(reproduced, tmp_path / "page.md")
    assert {path.name for path in (tmp_path / "page").iterdir()} == names - {"old.svg"}


def test_long_lists_of_claims_are_folded(reproduced: Path, page: Path) -> None:
    long = sum(len(item["claims"]) > MOST_CLAIMS for item in items_of(reproduced).values())
    assert 0 < long == page.read_text().count("<details") == page.read_text().count("</details>")


def test_results_of_other_settings_are_told_apart(reproduced: Path, tmp_path: Path) -> None:
    items = {name: item for name, item in items_of(reproduced).items() if name in ("lory-fig3", "lory-fig6")}
    for cell in items["lory-fig6"]["cells"]:
        cell["settings"]["steps"] = 7
    items["lory-fig6"]["date"] = "2020-02-02"
    (tmp_path / "tiny.json").write_text(json.dumps({"items": items}))
    text = findings_page(read_scales(tmp_path), "findings")
    assert "1 seed, 2 steps of 48 tokens, on 20" in text
    assert "1 seed, 7 steps of 48 tokens, on 2020-02-02" in text


def test_a_picture_is_the_same_each_time(reproduced: Path) -> None:
    for _, chart in shown_charts(read_scales(reproduced)):
        assert picture(chart) == picture(chart)


def test_the_published_page_is_made_from_the_committed_results() -> None:
    scales = read_scales(ROOT / "benchmarks" / "results" / "reproduce")
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert page == findings_page(scales, "findings"), "run benchmarks/findings.py"
    charts = dict(shown_charts(scales))
    assert {path.stem for path in (ROOT / "docs" / "findings").glob("*")} == charts.keys()
    for name, chart in charts.items():  # bytes depend on Matplotlib's version
        assert digest(chart) in (ROOT / "docs" / "findings" / f"{name}.svg").read_text(encoding="utf-8")
