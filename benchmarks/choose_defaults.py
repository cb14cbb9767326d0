"""The measurements behind the quickstart's defaults: rates, moments, warm-up, segment length; three seeds.

python benchmarks/choose_defaults.py --text TEXT --out WORK --results results/choose_defaults.json
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from experiment import experiment
from loriini.recipes import quickstart_run
from loriini.train.run import Run

RATES = (2e-3, 4e-3, 8e-3)


def change(run: Run, **parts: Any) -> Run:
    """A run with fields of its parts changed: `optimizer={...}, warmup={...}, routing={...}`."""
    return replace(run, **{part: replace(getattr(run, part), **fields) for part, fields in parts.items()})


def grid(out: Path, steps: int) -> dict[str, Run]:
    """Both models over the learning rate, and Lory's one change at a time."""
    corpus = ((out / "similar").resolve(),)
    dense = replace(quickstart_run("dense", "small", steps, 0), corpus=corpus)
    lory = replace(quickstart_run("lory", "small", steps, 0), corpus=corpus)
    lory = change(lory, routing={"segment_length": 64})
    return {
        **{f"dense-rate-{rate:g}": change(dense, optimizer={"learning_rate": rate}) for rate in RATES},
        **{f"lory-rate-{rate:g}": change(lory, optimizer={"learning_rate": rate}) for rate in RATES},
        "lory-fresh-moments": change(lory, warmup={"moments": "fresh"}),
        "lory-no-warmup": change(lory, warmup={"dense_share": 0.0}),
        "lory-router-rate-x4": change(lory, optimizer={"router_rate": 4.0}),
        "lory-segment-128": change(lory, routing={"segment_length": 128}),
    }


if __name__ == "__main__":
    experiment(__file__, grid, ("similar",), steps=500, experiment="choose_defaults")
