"""Charts name what they show."""

import re

from loriini.papers.reproduce.charts import dots, draw

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
