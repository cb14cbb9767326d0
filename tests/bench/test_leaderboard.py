"""The leaderboard: rates chosen by training loss alone, sentences by intervals, a page made of the JSON."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tinybench import results_of, script

ROOT = Path(__file__).parents[2]
DESIGNS = ("dense", "lory", "ec-token", "label")
WARMED = ("lory", "label")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a leaderboard of four designs, two rates and two seeds, trained in this process."""
    rates = ("--rates", "1e-4", "8e-3", "--designs", *DESIGNS)
    more = ("--steps=3", "--rate-seeds=2", *rates)
    return results_of("leaderboard", tmp_path_factory.mktemp("leaderboard"), *more)


def test_the_rate_of_the_lowest_training_loss_is_trained_with_other_seeds(made: Path) -> None:
    found = json.loads(made.read_text())
    assert [v["design"] for v in found["variants"]] == [*DESIGNS]
    for v in found["variants"]:
        tried = found["tried"][v["design"]]
        assert v["finished_seeds"] == [100, 101]
        losses = tried["training_loss"]
        assert tried["rate"] == min(losses, key=losses.get)
        by_seed = [tried["by_seed"][seed] for seed in ("0", "1")]
        assert losses == pytest.approx({rate: (by_seed[0][rate] + by_seed[1][rate]) / 2 for rate in losses})
        assert v["settings"] == {"optimizer.learning_rate": tried["rate"]}
    assert found["run"]["model"]["initializer_range"] == 0.08  # of width 64
    folders = [path.name for path in (made.parent / "work" / "runs").iterdir()]
    tried = [*found["tried"].values(), *found["tried_warm"].values()]
    rates = [rate for one in tried for rate in one["training_loss"]]
    # Every rate with two seeds, one with two others; with a dense warm-up, here of one step, alike.
    assert len(folders) == 2 * len(rates) + 2 * (len(DESIGNS) + len(WARMED))


def test_none_has_a_dense_warmup_and_those_that_can_are_trained_with_it_too(made: Path) -> None:
    found = json.loads(made.read_text())
    assert found["run"]["warmup"]["dense_share"] == 0
    assert found["warmed"].keys() == found["tried_warm"].keys() == set(WARMED)
    means = {v["design"]: v["perplexity"]["all"]["mean"] for v in found["variants"]}
    for design, warm in found["warmed"].items():
        assert warm["dense_steps"] == 1  # of three
        assert found["copied"][design] == warm  # as after a single one
        assert warm["rate"] == found["tried_warm"][design]["rate"]
        ratio = warm["perplexity"]["mean"] / means[design]
        assert warm["difference"]["change"] == pytest.approx(ratio - 1, abs=1e-6)
        to_dense = warm["perplexity"]["mean"] / means["dense"] - 1
        assert warm["to_first"]["change"] == pytest.approx(to_dense, abs=1e-6)
    runs = [json.loads(path.read_text()) for path in (made.parent / "work" / "runs").glob("*/run.json")]
    assert {run["name"] for run in runs if run["warmup"]["dense_share"]} == set(WARMED)
    text = script("leaderboard_page").leaderboard_page(made)
    section = text.split("## What a dense warm-up changes\n")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| l")]
    for design in WARMED:
        of_design = [row[1:4] for row in rows if row[0] == f"| {design}"]
        cold, warm = (found[key][design]["rate"] for key in ("tried", "tried_warm"))
        assert [row[:2] for row in of_design] == [["0", cold], ["1", warm], ["1", warm]]
        assert of_design[0][2].startswith(f"{means[design]:.1f}"[:3])


def test_rates_are_added_beyond_the_best_until_it_is_between_others(made: Path) -> None:
    tuning = script("tuning")
    found = json.loads(made.read_text())
    for tried in (*found["tried"].values(), *found["tried_warm"].values()):
        rates = sorted(map(float, tried["training_loss"]))
        assert len(rates) > 2  # of two, one is the best, and at an edge
        assert tried["edge"] == (float(tried["rate"]) in (rates[0], rates[-1]))
        assert not tried["edge"] or len(rates) == 2 + tuning.EXTENSIONS


@pytest.mark.parametrize(
    ("rates", "best", "added"),
    [
        (["4e-3", "8e-3"], "8e-3", "1.6e-2"),
        (["1e-3", "2e-3"], "1e-3", "5e-4"),
        (["8e-4", "0.0004"], "0.0004", "2e-4"),
    ],
)
def test_the_next_rate_is_twice_the_greatest_or_half_the_least(
    rates: list[str], best: str, added: str
) -> None:
    assert script("tuning").next_rate(rates, best) == added


def test_a_soft_mixture_is_narrowed_to_its_likeliest_experts(made: Path) -> None:
    found = json.loads(made.read_text())
    (lory,) = (v for v in found["variants"] if v["design"] == "lory")
    assert list(found["narrowed"]) == ["lory"]
    whole, *narrowed = found["narrowed"]["lory"]
    assert [each["experts"] for each in (whole, *narrowed)] == [8, 4, 2, 1]
    assert whole["perplexity"]["mean"] == pytest.approx(lory["perplexity"]["all"]["mean"], rel=1e-5)
    assert "difference" not in whole
    for each in narrowed:
        ratio = each["perplexity"]["mean"] / whole["perplexity"]["mean"]
        assert each["difference"]["change"] == pytest.approx(ratio - 1, abs=1e-6)
        assert ratio != 1
    text = script("leaderboard_page").leaderboard_page(made)
    rows = text.split("## From soft to top-k")[1].split("## Learning rates")[0]
    assert rows.count("| lory | ") == 4


def test_the_leader_is_compared_with_all_others(made: Path) -> None:
    found = json.loads(made.read_text())
    means = {v["design"]: v["perplexity"]["all"]["mean"] for v in found["variants"]}
    leader = found["leader"]
    assert leader["design"] != "label"
    assert means[leader["design"]] == min(mean for design, mean in means.items() if design != "label")
    assert leader["differences"].keys() == set(DESIGNS) - {leader["design"]}
    assert all(each["change"] >= 0 for name, each in leader["differences"].items() if name != "label")


def test_the_page_says_what_the_intervals_support(made: Path, tmp_path: Path) -> None:
    page = script("leaderboard_page")
    found: dict[str, Any] = json.loads(made.read_text())
    text = page.leaderboard_page(made)
    for name in DESIGNS:
        assert f"| {name} |" in text
    assert "Losses of ec-token, where training sees later tokens, are left out." in text
    assert "label is told the domain of every document, held-out ones too, and has an expert" in text
    assert "differ in their dense warm-up" not in text
    assert "--batch-size 1" in text
    changed = copy.deepcopy(found)
    sure = {"change": 0.1, "low": 0.05, "high": 0.15}
    split = {"change": 0.1, "low": -0.05, "high": 0.15}
    one_seed = {"change": 0.1, "low": None, "high": None}
    differences = {
        "lory": {"change": 0.1, "seeds": sure, "documents": sure},
        "ec-token": {"change": 0.1, "seeds": split, "documents": sure},
        "label": {"change": 0.1, "seeds": one_seed, "documents": sure},
    }
    changed["leader"] = {"design": "dense", "differences": differences}
    lead = (
        "**Equal active parameters and tokens.** dense has the lowest held-out perplexity of the designs "
        "that see tokens alone. "
    )
    apart = "The intervals do not tell it apart from ec-token. "
    assert page.advice(changed) == f"{lead}{apart}Worse: lory."
    differences["lory"]["seeds"] = one_seed
    assert page.advice(changed).endswith("apart from lory and ec-token. No design is clearly worse.")
    differences["lory"]["seeds"] = sure
    del differences["ec-token"]
    assert page.advice(changed) == f"{lead}All others are worse."
    changed["leader"] = {"design": "label", "differences": differences}
    assert "No leader but label is compared" in page.advice(changed)
    assert "relative to label" not in page.perplexity_table(changed, changed["variants"])
    assert "There are no results yet" in page.leaderboard_page(tmp_path / "none.json")


def test_designs_of_another_size_and_of_any_number_of_experts_stand_apart(made: Path, tmp_path: Path) -> None:
    found: dict[str, Any] = json.loads(made.read_text().replace('"label"', '"relu"'))
    relu = next(v for v in found["variants"] if v["design"] == "relu")
    relu["parameters"]["active"] *= 2
    relu["perplexity"]["all"]["mean"] = relu["equal"]["flops"]["loss"]["mean"] = 0.5  # the lowest
    found["remarks"] = ["Parameters active for a token differ."]
    board = script("leaderboard")
    best = board.leader(found["variants"])
    assert best != "relu"
    found["leader"] = {"design": best, "differences": {}}
    path = tmp_path / "leaderboard.json"
    path.write_text(json.dumps(found))
    text = script("leaderboard_page").leaderboard_page(path)
    ranked, rest = text.split("### Of another active size")
    assert "\n| dense |" in ranked
    assert "\n| relu |" not in ranked
    assert "relu 2.00 times as many. For relu, which may select any number of experts" in rest
    advice = [line for line in text.splitlines() if line.startswith(("- **Equal ", "- **Seconds"))]
    assert not any("relu" in line for line in advice)
    assert "\n\n- Parameters active for a token differ.\n\n" in text
    budgets = rest.split("## Equal tokens")[1].split("## What a dense")[0]
    (row,) = (line for line in budgets.splitlines() if line.startswith("| relu | "))
    assert row.endswith(" |  |  |")
    assert "The training losses of lory may be too low" in text


def test_the_page_names_the_designs_that_a_dense_warmup_makes_better() -> None:
    page = script("leaderboard_page")
    below, above = ({"change": x, "low": x - 0.01, "high": x + 0.01} for x in (-0.1, 0.0))
    warmed = {
        "lory": {"difference": {"change": -0.1, "seeds": below, "documents": below}},
        "frozen": {"difference": {"change": -0.1, "seeds": above, "documents": below}},
        "label": {},
    }
    (said,) = page.helped_by_warmup({"warmed": warmed})
    assert said.startswith("- **Dense warm-up.** Of lory and frozen, better with it than without: lory (")
    assert page.helped_by_warmup({"warmed": {"frozen": warmed["frozen"]}}) == []


def variant(design: str, total: int, seeds: list[int], perplexity: float | None) -> dict[str, Any]:
    found = {"design": design, "parameters": {"active": 500_000, "total": total}, "finished_seeds": seeds}
    return found if perplexity is None else {**found, "perplexity": {"all": {"mean": perplexity}}}


HAND_MADE: dict[str, Any] = {
    "date": "2026-01-02",
    "machine": {
        **{"processor": "Some CPU", "cores": 4, "torch": "2.0"},
        **{"jobs": 2, "threads": 1, "precision": "bf16"},
    },
    "heldout": {"instances": {"web": 32, "books": 32}, "length": 512, "skip": 128},
    "causal": ["dense", "lory", "switch", "aoe"],
    "seeds": 3,
    "rates": ["2e-3", "4e-3", "8e-3"],
    "rate_seeds": 2,
    "tried": {},
    "run": {
        "steps": 1000,
        "batch_size": 4,
        "length": 512,
        "model": {"hidden_size": 64, "initializer_range": 0.08, "num_hidden_layers": 4},
        "optimizer": {"warmup": 0.2},
        "warmup": {"dense_share": 0.05},
    },
    "variants": [
        variant("dense", 500_000, [0, 1, 2], 50.0),
        variant("lory", 2_000_000, [0, 2], 40.0),
        variant("aoe", 2_000_000, [], None),
    ],
}


def test_the_head_names_what_was_measured_and_how() -> None:
    page = script("leaderboard_page")
    assert page.measured(HAND_MADE) == (
        "Measured: 2 of 4 causal designs (lory and dense). Trained, but finished with no seed: aoe. "
        "lory finished with 2 of 3 seeds. Not measured: switch.\n"
    )
    alone = {**HAND_MADE, "causal": ["dense"], "variants": HAND_MADE["variants"][:1]}
    assert page.measured(alone) == "Measured: 1 of 1 causal designs (dense).\n"
    said = page.chosen_rates(HAND_MADE)
    assert "with seeds 0 and 1 and each of the learning rates 2e-3, 4e-3 and 8e-3.\n- The rate" in said
    losses = {"8e-3": 2.0, "1.6e-2": 3.0}
    further = {"lory": {"training_loss": losses, "by_seed": {"0": losses}, "rate": "8e-3"}}
    said = page.chosen_rates({**HAND_MADE, "tried": further})
    assert "2e-3, 4e-3 and 8e-3. If the best was the greatest or the least, twice or half" in said
    assert "was trained with seeds 0, 1 and 2, which alone are reported. Held-out text has" in said
    one_seed = [variant("dense", 500_000, [1], 50.0)]
    assert "with seed 1, which is reported." in page.chosen_rates({**HAND_MADE, "variants": one_seed})
    assert page.made_with(HAND_MADE).splitlines()[2:] == [
        "| model | width 64, 4 layers, 500 k to 2 M parameters, 500 k of them active |",
        "| initial weights | standard deviation 0.64/√width |",
        "| training | 1,000 steps of 4 × 512 tokens, 2.05 M in all |",
        "| learning rate | [tuned](#learning-rates); rises for 20 % of the steps |",
        "| dense warm-up | 5 % of the steps of a mixture |",
        "| seeds | 3 |",
        "| scored on | 32 instances of 512 tokens of each of 2 domains, without the first 128 tokens of an "
        "instance |",
        "| machine | Some CPU, 4 cores, 2 trainings at once, 1 thread each, bf16, torch 2.0 |",
        "| date | 2026-01-02 |",
    ]
    wide = {"model": {"hidden_size": 64, "initializer_range": 0.02}}
    assert script("pages").deviation_text(wide) == "0.02"


def test_designs_for_which_single_seeds_choose_other_rates_are_named() -> None:
    said = script("pages").uncertain_choice
    first, second = {"4e-3": 2.0, "8e-3": 3.0}, {"4e-3": 2.0, "8e-3": 1.0}
    tried = {
        "dense": {"rate": "4e-3", "by_seed": {"0": first, "1": {**first, "8e-3": None}}},
        "lory": {"rate": "4e-3", "by_seed": {"0": first, "1": second}},
    }
    assert said(tried, "designs").startswith(
        "For 1 of 2 designs each seed alone chooses the same rate, not for lory."
    )
    one_seed = {name: {**one, "by_seed": {"0": first}} for name, one in tried.items()}
    assert said(one_seed, "designs").startswith("A single seed chose the rates.")


def test_a_rate_is_chosen_only_where_one_did_not_diverge() -> None:
    """Of every family `choices` marks one as chosen, also where all diverged."""
    rate = {"chosen": True, "edge": True, "settings": {"optimizer.learning_rate": "1"}}
    variants = [
        {**rate, "design": "lory", "finished_seeds": [0], "training_loss": {"mean": 3.0}},
        {**rate, "design": "dense", "finished_seeds": []},
    ]
    tried = script("tuning").tried_rates({"variants": variants, "cells": []}, "design")
    assert tried["lory"]["rate"] == "1"
    assert "rate" not in tried["dense"]
    _, *rows = script("pages").rate_table("design", tried.items()).splitlines()[1:]
    assert rows == ["| lory | 3.000 | 1 |", "| dense | diverged | – |"]


def test_the_published_page_is_made_from_the_committed_results() -> None:
    made = script("leaderboard_page").leaderboard_page(ROOT / "benchmarks" / "results" / "leaderboard.json")
    assert (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8") == made
