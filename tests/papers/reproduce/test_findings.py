"""The findings page: from results alone, with pictures, and the same as the published one."""

import json
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.tinybench import script
from cli.calls import parsed
from loriini.cli import main
from loriini.common.atomic import write_json
from loriini.common.errors import InputError
from loriini.papers.reproduce.experiments.catalog import ITEM_ORDER
from loriini.papers.reproduce.findings import (
    MOST_CLAIMS,
    MOST_PICTURES,
    chart_digest,
    findings_page,
    missing,
    rates,
    read_file,
    read_scales,
    shown_charts,
    write_findings,
)
from loriini.papers.reproduce.results import RESULTS, outdated, read_items
from loriini.papers.reproduce.wording import command, headline

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


def test_the_command_of_an_item_can_be_given() -> None:
    item = {"item": "lory-fig3", "scale": "tiny", "seeds": 1, "text": ["a.txt"]}
    for found in (item, {**item, "text": [], "reasons": True}):
        program, *words = command(found).split()
        arguments = parsed(words)
        assert (program, arguments.settings.items, arguments.out) == ("loriini", ("lory-fig3",), Path("DIR"))
        assert bool(arguments.settings.text) == bool(found["text"])


def test_every_picture_of_the_page_is_drawn(reproduced: Path, page: Path) -> None:
    shown = re.findall(r"\]\(findings/(.*?)\)", page.read_text())
    assert sorted(shown) == sorted(path.name for path in (page.parent / "findings").iterdir())
    charts = [len(item["charts"]) for item in items_of(reproduced).values()]
    assert len(shown) == sum(min(MOST_PICTURES, n) for n in charts)
    assert max(charts) == MOST_PICTURES
    for name in shown:
        assert ElementTree.parse(page.parent / "findings" / name).getroot().tag.endswith("svg")


def test_pictures_are_the_same_each_time_and_earlier_ones_are_removed(
    reproduced: Path, page: Path, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in (page.parent / "findings").iterdir()}
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "earlier.svg").write_bytes(next(iter(before.values())))
    (tmp_path / "page" / "mine.svg").write_text("<svg/>")
    write_findings(reproduced, tmp_path / "page.md")
    after = {path.name: path.read_bytes() for path in (tmp_path / "page").iterdir()}
    assert after == {**before, "mine.svg": b"<svg/>"}


def test_a_page_needs_another_name_than_its_pictures(reproduced: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"page: the pictures' folder has this name; give one that ends in"):
        write_findings(reproduced, tmp_path / "page")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key", ["reasons", "differs", "machine", "date", "seeds", "open_in_the_paper"])
def test_results_of_an_older_version_are_refused(reproduced: Path, tmp_path: Path, key: str) -> None:
    item = items_of(reproduced)["lory-fig3"]
    del item[key]
    (tmp_path / "old.json").write_text(json.dumps({"items": {"lory-fig3": item}}))
    with pytest.raises(InputError, match=r"old.json: no results of"):
        write_findings(tmp_path, tmp_path / "page.md")


def test_long_lists_of_claims_are_folded(reproduced: Path, page: Path) -> None:
    long = sum(len(item["claims"]) > MOST_CLAIMS for item in items_of(reproduced).values())
    assert 0 < long == page.read_text().count("<details") == page.read_text().count("</details>")


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("optimizer.learning_rate", 1.0, "trained with optimizer.learning_rate 1.0, but scale tiny has"),
        ("optimizer.warmup", 0.5, "trained with optimizer.warmup 0.5, but"),
        ("warmup.dense_share", 0.5, "trained with warmup.dense_share 0.5, but"),
        ("model.hidden_size", 8, "trained with model.hidden_size 8, but"),
        ("routing.top_k", 7, "trained with routing.top_k 7, but"),
        ("precision", "bf16", "trained with precision bf16, but"),
        ("optimizer", None, "it is not recorded with which optimizer"),
    ],
)
def test_every_setting_of_a_training_is_compared_with_todays(
    reproduced: Path, setting: str, value: Any, reason: str
) -> None:
    found = items_of(reproduced)["lory-fig3"]
    assert not outdated(found)
    *parts, name = setting.split(".")
    settings = found["cells"][0]["settings"]
    for part in parts:
        settings = settings[part]
    settings[name] = value
    if value is None:
        del settings[name]
    assert reason in outdated(found)


def test_rates_are_those_of_the_trainings(reproduced: Path) -> None:
    items = {name: items_of(reproduced)[name] for name in ("lory-fig3", "lory-table4")}
    assert rates(items) == "Learning rates: 0.004 at width 16."
    cell = items["lory-fig3"]["cells"][0]["settings"]
    cell["model"]["hidden_size"], cell["optimizer"]["learning_rate"] = 32, 0.002
    assert rates(items) == "Learning rates: 0.004 at width 16; 0.002 at width 32."


def test_items_without_results_are_named(reproduced: Path) -> None:
    items = items_of(reproduced)
    assert missing({name: items.get(name, {}) for name in ITEM_ORDER}) == ""
    without = {name: {} for name in ITEM_ORDER if name != "lory-fig3"}
    assert missing(without).startswith("Not measured, or not as defined today: ")
    assert missing(without).endswith("(lory-fig3).")


def test_computed_findings_are_counted_apart_and_one_experiment_once(reproduced: Path) -> None:
    items = items_of(reproduced)
    chosen = {name: items[name] for name in ("lory-table4", "lory-fig3", "lory-table6")}
    chosen["lory-table9"] = {**chosen["lory-table6"], "item": "lory-table9", "source": "table 9"}
    assert headline(chosen) == "Of 2 measured findings 2 are undecided; of 1 computed finding 1 holds"
    page = findings_page([chosen], "findings")
    assert "The same experiment as [table 6; appendix G.2](#lory-table6-tiny): undecided." in page
    alone = findings_page([{"lory-table9": chosen["lory-table9"]}], "findings")
    claims = [page.count(claim["quantity"]) for claim in chosen["lory-table6"]["claims"]]
    assert claims == [alone.count(claim["quantity"]) for claim in chosen["lory-table6"]["claims"]]
    assert all(claims)


def test_rows_that_see_later_tokens_are_marked(reproduced: Path, page: Path) -> None:
    differs = items_of(reproduced)["lory-fig3"]["differs"]
    assert "losses of rows marked (sees later tokens) are too low to compare with causal models'" in differs
    assert "| SMEAR (sees later tokens) |" in page.read_text()
    assert "| prefix routing |" in page.read_text()
    assert "SMEAR (sees later tokens)" in (reproduced / "lory-fig3" / "report.html").read_text()


@pytest.fixture
def with_older(reproduced: Path, tmp_path: Path) -> Path:
    """Two items, one of them trained when its scale was defined otherwise."""
    for name in ("lory-fig3", "lory-fig6"):
        shutil.copytree(reproduced / name, tmp_path / "out" / name)
    path = tmp_path / "out" / "lory-fig6" / RESULTS
    found = json.loads(path.read_text())
    for cell in found["cells"]:
        cell["settings"]["steps"] = 7
    path.write_text(json.dumps(found))
    write_json(tmp_path / "out" / RESULTS, {"items": read_items(tmp_path / "out")})
    return tmp_path / "out"


def test_what_the_paper_says_is_todays(reproduced: Path, tmp_path: Path) -> None:
    items = read_items(reproduced)
    older = {**items["lory-fig3"], "finding": "something else", "title": "another", "published": []}
    (tmp_path / "tiny.json").write_text(json.dumps({"items": {"lory-fig3": older}}))
    (read,) = read_scales(tmp_path)
    for key in ("finding", "title", "published", "source", "open_in_the_paper"):
        assert read["lory-fig3"][key] == items["lory-fig3"][key]


@pytest.mark.parametrize("items", [[], {"lory-fig3": 1}, {"lory-fig3": {"verdict": "holds"}}])
def test_a_file_of_something_else_is_named(tmp_path: Path, items: Any) -> None:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps({"items": items}))
    with pytest.raises(InputError, match=r"tiny\.json: no results of `loriini reproduce`"):
        read_scales(tmp_path)


def test_results_of_another_definition_of_the_scale_are_left_out(
    with_older: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = findings_page(read_scales(with_older), "findings")
    assert '<a id="lory-fig3-tiny"></a>' in text
    assert "are far smaller: 0.3b (width 16, 2 layers)." in text
    assert "1 seed, 2 steps of 48 tokens, on 20" in text
    assert '<a id="lory-fig6-tiny"></a>' not in text
    said = "lory-fig6: trained with steps 7, but scale tiny has steps 2 today (0.3B/8E)"
    assert said in " ".join(capsys.readouterr().err.split())


def test_results_of_another_definition_of_the_scale_are_not_kept(with_older: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    with pytest.raises(InputError, match=r"lory-fig6: trained with steps 7, .* has steps 2 today"):
        script("findings").keep(with_older, tmp_path / "kept")
    assert not list((tmp_path / "kept").iterdir())
    shutil.rmtree(with_older / "lory-fig6")
    script("findings").keep(with_older, tmp_path / "kept")
    assert list(json.loads((tmp_path / "kept" / "tiny.json").read_text())["items"]) == ["lory-fig3"]


def test_the_published_page_is_made_from_the_committed_results(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scales = read_scales(ROOT / "benchmarks" / "results" / "reproduce")
    assert not capsys.readouterr().err, "of another definition of the scale: reproduce it again"
    assert scales == [read_file(ROOT / "benchmarks/results/reproduce/small.json")], (
        "run benchmarks/findings.py"
    )
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert page == findings_page(scales, "findings"), "run benchmarks/findings.py"
    charts = dict(shown_charts(scales))
    assert {path.stem for path in (ROOT / "docs" / "findings").glob("*")} == charts.keys()
    for name, chart in charts.items():  # bytes depend on Matplotlib's version
        assert chart_digest(chart) in (ROOT / "docs" / "findings" / f"{name}.svg").read_text(encoding="utf-8")
