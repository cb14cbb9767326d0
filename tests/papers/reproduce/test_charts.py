"""Charts name what they show."""

import re

import pytest

from loriini.papers.reproduce.charts import band, dots, draw, lines
from loriini.papers.reproduce.wording import caption

MANY = {f"design {i}": {"wiki": {0: 1.0 + i, 1: 1.5 + i}} for i in range(9)}


def labels(svg: str) -> list[str]:
    return re.findall(r">([^<]*)</text>", svg)


def test_series_of_a_single_category_are_named_on_the_axis() -> None:
    drawn = labels(draw(dots("perplexity", "perplexity", MANY)))
    assert [label for label in drawn if label in MANY] == list(MANY)
    assert "wiki" not in drawn


def test_series_of_several_categories_are_named_in_the_legend() -> None:
    two = {name: {**found, "web": found["wiki"]} for name, found in MANY.items()}
    drawn = labels(draw(dots("perplexity", "perplexity", two)))
    assert drawn.index("wiki") < drawn.index("web") < min(map(drawn.index, two))


@pytest.mark.parametrize("of_seeds", [True, False])
def test_only_lines_with_bands_are_called_means_over_seeds(of_seeds: bool) -> None:
    line = (
        band([1.0, 2.0], {0: [3.0, 2.0], 1: [4.0, 2.0]}) if of_seeds else {"x": [1.0, 2.0], "y": [3.0, 2.0]}
    )
    chart = {**lines("load", "tokens", "share", {"expert 0": line}), "text": ""}
    assert caption(chart) == (
        "Load. Line: mean over seeds; band: lowest to highest seed. share" if of_seeds else "Load. share"
    )
