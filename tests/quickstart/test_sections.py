"""What the report claims, and what it leaves open."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loriini.quickstart import sections
from loriini.quickstart.sections import QuickstartFiles
from quickstart.conftest import difference
from reports import HOSTILE, text_of


def compared(job: Path, design: str = "lory", **settings: Any) -> QuickstartFiles:
    """What the files of a job say, its mixture renamed, without curves."""
    results = json.loads((job / "results.json").read_text().replace("lory", design))
    said = json.loads((job / "settings.json").read_text())
    return QuickstartFiles(results, {**said, "design": design, **settings}, {})


def test_the_headline_says_what_was_measured(job: Path) -> None:
    text = text_of(sections.headline(compared(job)))
    assert "better than the dense model: perplexity 29.50 against 30.00" in text
    assert "averaged over domains, is 1.7 % lower than that of the dense model. " in text
    assert f"It is lower in python; higher in {HOSTILE}." in text
    assert "95 % interval−2.7 to −0.7 %" in text
    assert "routes the first segment, 8 of an instance's 32 tokens, by that segment's own text" in text
    assert (
        "(a paired bootstrap). It covers neither the choice of the files or packages they come from" in text
    )
    assert "For each token lory uses 1.10 times the dense parameters." in text


def test_of_a_single_domain_called_all_there_is_one_difference() -> None:
    c = QuickstartFiles({"difference": {"all": difference(-0.1, 0.01)}}, {"causality": "strict"}, {})
    assert not sections._domains(c)


@pytest.mark.parametrize(
    ("causality", "change", "reach", "verdict"),
    [
        (
            "strict",
            -0.02,
            0.01,
            "the smear mixture predicts unseen text better than the dense model",
        ),
        (
            "strict",
            0.02,
            0.01,
            "the dense model predicts unseen text better than the smear mixture",
        ),
        ("strict", -0.02, 0.03, "No clear difference between the smear mixture and the dense model"),
        ("strict", 0.02, float("nan"), "No clear difference between the smear mixture and the dense model"),
        ("strict", 0.0004, 0.0001, "No clear difference between the smear mixture and the dense model"),
        ("none", -0.5, 0.01, "The smear mixture sees later tokens, so its perplexity does not compare"),
    ],
)
def test_the_headline_claims_what_the_interval_does(
    job: Path, causality: str, change: float, reach: float, verdict: str
) -> None:
    c = compared(job, "smear", causality=causality)
    found = dict.fromkeys(("python", HOSTILE, "all"), difference(change, reach))
    text = text_of(sections.headline(replace(c, results={**c.results, "difference": found})))
    assert f"{verdict}: perplexity 29.50 against 30.00" in text
    decided = "better" in verdict
    assert (f"It is {'lower' if change < 0 else 'higher'} in python and {HOSTILE}." in text) == decided


def test_perplexity_has_a_second_view_where_a_segment_was_left_out(job: Path) -> None:
    c = compared(job)
    text = text_of(sections.perplexity_section(c))
    assert "After the first segment" in text.replace("Tokens after", "After")
    assert text.count("All tokens") == 1
    assert text.count("−11.0 to −9.0 %") == 1  # of the tokens that are compared
    same = {"perplexity": {"python": 9.0}, "perplexity_all": {"python": 9.0}}
    text = text_of(
        sections.perplexity_section(replace(c, results={**c.results, "dense": same, "lory": same}))
    )
    assert "All tokens" in text
    assert "first segment" not in text
    assert "−11.0 to −9.0 %" in text


@pytest.mark.parametrize("unknown", [None, float("nan")])
def test_an_unknown_cosine_has_its_reason(unknown: float | None, job: Path) -> None:
    c = compared(job)
    order = {"random": unknown, "similar": 0.25}
    text = text_of(sections.similar_documents_section(replace(c, results={**c.results, "order": order}), []))
    assert "in random order – (no instance holds two documents) and in similar order 0.250." in text
    assert "nan" not in text


def test_speed_is_the_mixtures_share_of_the_dense_models(job: Path) -> None:
    """Medians, of the mixture without its dense steps."""
    c = compared(job)
    metrics = {"dense": [{"experts": 1, "tokens_per_second": speed} for speed in (90.0, 200.0, 9999.0)]}
    metrics["lory"] = [{"experts": 1, "tokens_per_second": 9999.0}] * 3
    metrics["lory"] += [{"experts": 4, "tokens_per_second": speed} for speed in (1.0, 150.0, 9999.0)]
    text = text_of(sections.cost_section(replace(c, metrics=metrics)))
    assert "lory processed 150 tokens a second and the dense model 200" in text
    assert "0.75 of the dense model's speed" in text
