"""Every kind of design on the same text: short runs beside each other; does each learn, and at what speed?

python benchmarks/all_designs.py --text TEXT --out WORK --results results/all_designs.json
"""

from dataclasses import replace
from pathlib import Path

from experiment import experiment
from loriini.recipes import quickstart_run
from loriini.train.run import Run

DESIGNS = (
    "dense",
    "lory",
    "lory-top2",
    "prefix",
    "ec-token",
    "ec-segment",
    "switch",
    "mixtral",
    "segment-then-token",
    "deepseek-v3",
    "relu",
    "sequence-top2",
    "global-top2",
    "frozen",
    "random",
    "label",
    "aoe",
    "aoe-top-p",
    "aoe-ec",
)


def grid(out: Path, steps: int) -> dict[str, Run]:
    """One run a design, each with the quickstart's settings."""
    corpus = ((out / "similar").resolve(),)
    return {name: replace(quickstart_run(name, "small", steps, 0), corpus=corpus) for name in DESIGNS}


if __name__ == "__main__":
    experiment(__file__, grid, ("similar",), steps=300, experiment="all_designs")
