"""The papers' central experiment: {dense, Lory} × {similar, random order}, three seeds.

python benchmarks/similar_batching.py --text TEXT --out WORK --results results/similar_batching.json
"""

from dataclasses import replace
from pathlib import Path

from experiment import experiment
from loriini.recipes import quickstart_run
from loriini.train.run import Run

ORDERS = ("similar", "random")
LENGTH, BATCH_SIZE, LONGEST = 1024, 4, 6000
"""Whole documents of up to LONGEST characters, of which an instance of LENGTH tokens holds several."""


def grid(out: Path, steps: int) -> dict[str, Run]:
    """The four cells."""
    return {
        f"{design}-{order}": replace(
            quickstart_run(design, "small", steps, 0),
            corpus=((out / order).resolve(),),
            length=LENGTH,
            batch_size=BATCH_SIZE,
        )
        for design in ("dense", "lory")
        for order in ORDERS
    }


if __name__ == "__main__":
    experiment(
        __file__, grid, ORDERS, steps=1200, length=LENGTH, longest=LONGEST, experiment="similar_batching"
    )
