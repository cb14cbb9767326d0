"""The tables of docs/experiments.md are those of the results, with differences paired by seed."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

from tinybench import script

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_results(tmp_path: Path) -> None:
    figures, page = script("figures"), ROOT / "docs" / "experiments.md"
    copied = Path(shutil.copy(page, tmp_path))
    parts = figures.PAGES[page.name]
    folder = ROOT / "benchmarks" / "results"
    results = {
        part.source: json.loads((folder / f"{part.source}.json").read_text()) for part in parts.values()
    }
    figures.fill(copied, parts, results)
    assert copied.read_text(encoding="utf-8") == page.read_text(encoding="utf-8")


def rows(name: str, *values: float) -> list[dict[str, object]]:
    return [{"name": name, "seed": seed, "mean_perplexity": value} for seed, value in enumerate(values)]


def test_differences_are_paired_by_seed_and_have_an_interval() -> None:
    tables = script("experiment_tables")
    # Twice as high with the second seed: a tenth lower in both, though the means are far apart.
    results = [
        *rows("dense-similar", 100, 200),
        *rows("lory-similar", 90, 180),
        *rows("dense-random", 100, 100),
        *rows("lory-random", 90, 100),
    ]
    similar, random, beside = tables.batching_table({"results": results}).splitlines()[2:]
    assert similar.endswith("| −10.0 % (−10.0 to −10.0 %) |")
    assert math.isclose(float(similar.split(" | ")[1].split(" (")[0]), math.sqrt(100 * 200), abs_tol=0.05)
    assert "−5.1 % (" in random
    assert beside.endswith("%) |")


def test_an_evaluation_along_the_way_is_found_by_its_step() -> None:
    tables = script("experiment_tables")
    evaluation = [
        {"step": step, "mean_perplexity": 50.0, "perplexity": {"web": 50.0}} for step in tables.SHOWN_STEPS
    ]
    lower = [{**each, "mean_perplexity": 45.0, "perplexity": {"web": 40.0}} for each in evaluation]
    runs = [
        ("dense", evaluation),
        ("lory", [*evaluation[:-1], lower[-1]]),
        ("lory-equal-gates", evaluation),
    ]
    results = [{"name": name, "seed": seed, "evaluation": own} for seed in (0, 1) for name, own in runs]
    table = tables.along_the_way(results).splitlines()
    assert table[2].endswith("| +0.0 % (+0.0 to +0.0 %) | +0.0 % (+0.0 to +0.0 %) |")
    assert table[-1] == (
        "| 2,000 | 50.0 (50.0 to 50.0) | 45.0 (45.0 to 45.0) | 50.0 (50.0 to 50.0) "
        "| −10.0 % (−10.0 to −10.0 %) | +0.0 % (+0.0 to +0.0 %) |"
    )
    assert tables.by_domain(tables.evaluated(results, 2000)) == "web −20.0 % (−20.0 to −20.0 %)"


def test_differences_at_the_end_have_both_intervals() -> None:
    tables = script("experiment_tables")

    def difference(change: float) -> dict[str, Any]:
        interval = {"change": change, "low": change - 0.01, "high": change + 0.01}
        return {"change": change, "seeds": interval, "documents": interval}

    names = ("all", "web")
    variants = {"dense": {"perplexity": {name: {"mean": 50.0} for name in names}}} | {
        mixture: {"difference": {name: difference(change) for name in names}}
        for mixture, change in (("lory", -0.1), ("lory-equal-gates", 0.0))
    }
    rows = tables.at_the_end(variants).splitlines()[2:]
    assert rows[0].startswith("| mean | 50.0 | −10.0 % | −11.0 to −9.0 % | −11.0 to −9.0 % | +0.0 % |")
    assert rows[1].startswith("| web |")
