"""The report: what it claims, what it keeps apart, and that it needs nothing from outside."""

import re
from pathlib import Path
from typing import Any

from cli.calls import Captured, call
from compare.conftest import Compared
from loriini.compare.report import (
    by_domain_section,
    cells_with_equal_steps,
    perplexity_rows,
    write_comparison,
)
from loriini.compare.verdict import headline, verdict_of
from loriini.evaluate.intervals import OVERALL
from reports import Page


def variant(
    name: str, seeds: tuple[float | None, ...], documents: tuple[float | None, ...]
) -> dict[str, Any]:
    change = (documents[0] + documents[1]) / 2 if None not in documents else -0.03
    intervals = {
        kind: {"change": change, "low": low, "high": high}
        for kind, (low, high) in (("seeds", seeds), ("documents", documents))
    }
    return {"name": name, "difference": {"all": {"change": change, **intervals}}}


BETTER = variant("lory", (-0.05, -0.01), (-0.04, -0.02))
WORSE = variant("relu", (0.05, 0.09), (0.04, 0.08))
UNCLEAR = [
    variant("aoe", (-0.05, 0.01), (-0.04, -0.02)),
    variant("aoe", (-0.05, -0.01), (-0.08, 0.02)),
    variant("aoe", (-0.055, -0.005), (-0.055, -0.005)),  # each excludes 0, both together do not
    variant("aoe", (None, None), (None, None)),
    variant("aoe", (0.0002, 0.0006), (0.0003, 0.0005)),  # shown as +0.0 %
]
ONE_SEED = [variant("lory", (None, None), ends) for ends in ((-0.04, -0.02), (0.02, 0.04))]


def test_the_headline_claims_what_every_interval_supports() -> None:
    results = {"baseline": "dense", "heldout": {"skip": 8}}
    dense = {"name": "dense"}
    assert [verdict_of(v["difference"][OVERALL]) for v in (BETTER, WORSE)] == ["better", "worse"]
    assert {verdict_of(v["difference"][OVERALL]) for v in (*UNCLEAR, *ONE_SEED)} == {"no clear difference"}
    found = "Perplexity of unseen text, better than dense: lory (−3.0 %)"
    assert headline(results, [dense, BETTER]) == found
    found = f"{found}; worse than dense: relu (+6.0 %); no clear difference from dense: aoe (−3.0 %)"
    assert headline(results, [dense, BETTER, WORSE, UNCLEAR[0]]) == found
    assert "not tested across seeds against dense: lory" in headline(results, [dense, ONE_SEED[0]])
    assert headline(results, [dense]) == "dense: no differences to show"


def test_the_headline_names_designs_and_a_column_the_rates_that_a_sweep_chose() -> None:
    def scored(design: str, rate: str, like: dict[str, Any]) -> dict[str, Any]:
        settings = {"optimizer.learning_rate": rate, "routing.top_k": "2"}
        name = f"{design} learning_rate={rate} top_k=2"
        row = {**like, "name": name, "design": design, "settings": settings}
        return {**row, "perplexity": {OVERALL: {"mean": 9.0, "low": None, "high": None}}}

    shown = [scored("dense", "8e-3", {}), scored("aoe", "4e-3", UNCLEAR[0])]
    results = {"baseline": shown[0]["name"], "heldout": {"skip": 8}}
    found = "Perplexity of unseen text, at the best settings of each, no clear difference from dense top_k=2"
    assert headline(results, shown) == f"{found}: aoe top_k=2 (−3.0 %)"
    header, *rows = perplexity_rows(shown)
    assert header[:3] == ["", "best settings", "perplexity"]
    assert [row[:3] for row in rows] == [
        ["dense top_k=2", "learning_rate=8e-3", "9.00"],
        ["aoe top_k=2", "learning_rate=4e-3", "9.00"],
    ]
    both = [shown[0], scored("dense", "2e-3", UNCLEAR[0])]  # existing runs, which no sweep chose among
    assert "dense learning_rate=2e-3 top_k=2" in headline(results, both)
    assert perplexity_rows(both)[0][:2] == ["", "perplexity"]


def test_a_single_domain_called_all_has_no_section_of_its_own() -> None:
    scored = {"perplexity": {"all": {}}, "bits_per_byte": {"all": {}}, "causality": "strict"}
    assert by_domain_section({"baseline": "dense"}, [{"name": "dense", **scored}]) is None


def test_the_command_prints_the_headline_the_table_and_last_the_reports_path(
    compared: Compared, capsys: Captured, tmp_path: Path
) -> None:
    folders = [compared.folder(name, 0) for name in ("dense", "lory")]
    ended = call(capsys, "compare", *folders, "--heldout", compared.heldout, "--out", tmp_path)
    first, head, dense, lory, path = ended.out.splitlines()
    assert "not tested across seeds against dense: lory" in first
    assert head.split()[:2] == ["perplexity", "difference"]
    assert (dense.split()[0], lory.split()[0]) == ("dense", "lory")
    assert "one seed" in lory
    assert path == str(tmp_path / "report.html")


def test_the_page_shows_every_section_and_needs_nothing_from_outside(compared: Compared) -> None:
    page = compared.page
    assert Page(page).headings[1:] == [
        "Perplexity",
        "By domain",
        "Learning",
        "Use of experts",
        "Not causal",
        "Trainings",
        "How it was made",
    ]
    assert not re.search(r'(src|href)="(?!#)', page)
    assert not re.search(r"url\((?!#)", page)
    assert "<script" not in page
    assert page.count('role="img" aria-label="') == page.count("<svg") == 4
    for words in ("long one, without its first 8 tokens", "With 2 seeds a 95 % interval reaches 9.0", "odd"):
        assert words in page


def test_non_causal_designs_stand_apart(compared: Compared) -> None:
    part = {text.split("</h2>")[0]: text for text in compared.page.split("<h2>")[1:]}
    assert "not comparable" in part["Not causal"]
    assert "smear" in part["Not causal"]
    for name in ("Perplexity", "By domain"):
        assert "smear" not in part[name]
    assert "smear (sees later tokens)" in part["Learning"]


def test_names_and_errors_are_text(compared: Compared, tmp_path: Path) -> None:
    results = compared.results
    results["cells"][0] |= {"error": "<script>alert(1)</script>", "state": "failed"}
    results["remarks"] = ["<b>bold</b>"]
    page = write_comparison(results, tmp_path).read_text()
    assert "&lt;script&gt;" in page
    assert "&lt;b&gt;bold" in page
    assert "<script" not in page


def test_curves_are_averaged_over_seeds_with_the_same_steps() -> None:
    def cell(seed: int, state: str, steps: int) -> dict[str, Any]:
        return {"seed": seed, "state": state, "steps": steps}

    finished = [cell(0, "finished", 1000), cell(1, "finished", 1000)]
    assert cells_with_equal_steps([*finished, cell(2, "diverged", 40)]) == finished
    stopped = [cell(0, "failed", 30), cell(1, "diverged", 40)]
    assert cells_with_equal_steps(stopped) == stopped[1:]
