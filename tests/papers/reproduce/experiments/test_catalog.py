"""Every row runs from text to verdict, with runs of two steps."""

import html
import json
from pathlib import Path

import pytest

from loriini.papers.published import ITEMS, published_values
from loriini.papers.reproduce.claim import HOLDS, UNDECIDED
from loriini.papers.reproduce.experiments.aoe import ONE_MODEL
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS
from loriini.papers.reproduce.experiments.common import AT_CHANCE
from loriini.papers.reproduce.experiments.design_choices import EACH_TEXT, RECOVERED, SEES_ALL, WIDTHS_ALIKE
from loriini.papers.reproduce.experiments.lory import SEES_LATER_TOKENS, UNLIKE_TEXT
from loriini.papers.reproduce.report import item_line
from reproduce.conftest import SOME, results_of

NOT_TESTED = (
    RECOVERED,
    ONE_MODEL,
    EACH_TEXT,
    SEES_LATER_TOKENS,
    UNLIKE_TEXT,
    AT_CHANCE,
    WIDTHS_ALIKE,
    SEES_ALL,
    "experts that are active",  # compared with the paper only in windows of as many segments
)
"""Parts of the quantities that a scale, or what was measured at it, may leave unmeasured."""


def test_every_item_of_the_papers_has_a_row() -> None:
    assert EXPERIMENTS.keys() == ITEMS.keys()


@pytest.mark.parametrize("item", SOME)
def test_an_item_is_measured_judged_and_drawn(reproduced: Path, item: str) -> None:
    check(reproduced, item)


@pytest.mark.drill
@pytest.mark.parametrize("item", EXPERIMENTS)
def test_every_item_is_measured_judged_and_drawn(all_reproduced: Path, item: str) -> None:
    check(all_reproduced, item)


def check(reproduced: Path, item: str) -> None:
    found = results_of(reproduced, item)
    assert found["claims"], "a finding without a claim"
    unmeasured = [claim["quantity"] for claim in found["claims"] if claim["mean"] is None]
    assert all(any(part in quantity for part in NOT_TESTED) for quantity in unmeasured)
    if EXPERIMENTS[item].compute is None:
        assert {claim["verdict"] for claim in found["claims"] if not claim["exact"]} == {UNDECIDED}
        assert {cell["state"] for cell in found["cells"]} == {"finished"}
        rows = {cell["row"] for cell in found["cells"]}
        assert rows == set(ITEMS[item].runs) | set(EXPERIMENTS[item].more_runs)
    elif item == "lory-fig7":
        assert {claim["verdict"] for claim in found["claims"]} == {HOLDS}
    assert len(found["published"]) == len(published_values(item))
    page = (reproduced / item / "report.html").read_text()
    assert html.escape(item_line(found)[-1]) in page
    assert page.count("<svg") == len(found["charts"])


def test_the_folder_has_the_results_of_all(reproduced: Path) -> None:
    items = json.loads((reproduced / "results.json").read_text())["items"]
    assert items.keys() >= set(SOME)
    assert list(items) == [name for name in EXPERIMENTS if name in items]
    for name, found in items.items():
        assert {"cells", "published", "finding", "verdict"} <= found.keys(), name
    assert (reproduced / "report.html").exists()


def test_runs_are_shared_by_items(reproduced: Path) -> None:
    items = json.loads((reproduced / "results.json").read_text())["items"]
    folders = [p.name for p in (reproduced / "runs").iterdir()]
    cells = [cell["folder"] for item in items for cell in results_of(reproduced, item)["cells"]]
    assert sorted(set(cells)) == sorted(folders)
    assert len(cells) > len(folders)
