"""The papers' numbers agree with each other where they should; where the papers contradict themselves, it is
listed here."""

import math
from collections import Counter

import pytest

from loriini.evaluate.tasks.loading import GROUPS
from loriini.papers.published import ITEMS, OUR_DOMAINS, PARAMETERS, VALUES, published_values

AVERAGES = {"Avg": 0.1, "AVG.": 0.01}
"""The last digit printed: the mean of rounded cells, rounded, is at most this far from the printed one."""
CONTRADICTED = {
    ("lory-table8", "7B"): 62.64,
    ("aoe-table2", "1 MoE"): 43.26,
    ("aoe-table2", "6 AoE 64 + aux"): 44.14,
    ("aoe-table5", "AoE"): 49.77,
}
"""Printed averages that are not those of their rows → the rows' means."""


def cell(item: str, row: str, column: str, paper: str | None = None) -> float:
    (value,) = (v.value for v in published_values(item, row, column) if paper in (None, v.paper))
    return value


def cells(item: str, row: str, unit: str = "%") -> dict[str, float]:
    return {v.column: v.value for v in published_values(item, row) if v.unit == unit}


def averaged() -> list[tuple[str, str]]:
    return [(v.item, v.row) for v in VALUES if v.column in AVERAGES]


def test_a_cell_has_one_value_in_each_paper() -> None:
    counts = Counter((v.paper, v.item, v.row, v.column) for v in VALUES)
    assert max(counts.values()) == 1


def test_models_of_two_tables_have_one_perplexity() -> None:
    for unit, k in (("token", 1), ("token", 2), ("sequence", 1), ("sequence", 2)):
        first = cell("design-choices-table1", f"{unit}, layer-wise, top-{k}", "MultiWiki")
        assert cell("design-choices-table2", f"{unit} (4, {k})", "MultiWiki") == first


def test_soap_is_recorded_where_it_differs() -> None:
    for value in (value for value in VALUES if value.paper == "SOAP"):
        found = published_values(value.item, value.row, value.column)
        assert found[-1] == value
        assert value.value not in [other.value for other in found[:-1]]


def test_parameters_are_those_of_the_tables() -> None:
    """Lory names as many active parameters as the dense model has."""
    for item in ("lory-table4", "lory-table5"):
        for row, run in ITEMS[item].runs.items():
            total, active = (cell(item, name, "n_params") for name in (row, row.split("/")[0]))
            assert PARAMETERS[run.recipe] == {"total": total, "active": active}
    for row, run in ITEMS["design-choices-table1"].runs.items():
        assert PARAMETERS[run.recipe] == cells("design-choices-table1", row, "parameters")
    for item, source in (
        ("aoe-table2", "aoe-table2"),
        ("aoe-table3", "aoe-table2"),
        ("aoe-table5", "aoe-table5"),
    ):
        printed = cells(source, "setup", "parameters")
        for row, run in ITEMS[item].runs.items():
            kept = ("total",) if row.startswith("top-p") else ("total", "active")
            assert PARAMETERS[run.recipe] == {column: printed[column] for column in kept}


@pytest.mark.parametrize(("item", "row"), averaged())
def test_averages_are_the_means_of_their_rows(item: str, row: str) -> None:
    scores = cells(item, row)
    (name,) = scores.keys() & AVERAGES.keys()
    average = scores.pop(name)
    mean = math.fsum(scores.values()) / len(scores)
    assert (abs(average - mean) > AVERAGES[name]) == ((item, row) in CONTRADICTED)
    assert mean == pytest.approx(CONTRADICTED.get((item, row), average), abs=AVERAGES[name])


OUR_TASKS = """
PIQA=piqa SIQA=siqa BoolQ=boolq HellaSwag=hellaswag WinoGrande=winogrande RACE-m=race_m
RACE-h=race_h ARC-e=arc_easy ARC-c=arc_challenge NQ=nq_open TQA=triviaqa AGNews=agnews Amazon=amazon
SST-2=sst2_icl Yelp=yelp Fever=fever MRPC=mrpc_icl ARC-E=arc_easy WINO=winogrande HELLA=hellaswag
MNLI=mnli QNLI=qnli SST2=sst2
"""


def test_tasks_are_those_of_the_papers_groups() -> None:
    ours = dict(pair.split("=") for pair in OUR_TASKS.split())
    for item, group in (("lory-table1", "lory"), ("lory-table8", "lory"), ("aoe-table5", "aoe")):
        row = next(iter(ITEMS[item].runs))
        tasks = {ours[name] for name in cells(item, row) if name not in AVERAGES}
        assert GROUPS[group].keys() - tasks == ({"mrpc", "qqp"} if group == "aoe" else set())
        assert tasks <= GROUPS[group].keys()


def test_domains_have_our_names() -> None:
    for item in ("lory-table2", "lory-table7"):
        domains = [OUR_DOMAINS[value.column] for value in published_values(item)]
        assert set(domains) == {"arxiv", "books", "wiki", "web", "python"}
