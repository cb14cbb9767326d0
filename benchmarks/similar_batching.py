"""The papers' central experiment: {dense, Lory} × {similar, random order}, three seeds.

python benchmarks/similar_batching.py --text PATH… --out WORK --results results/similar_batching.json
"""

from dataclasses import replace

from experiment import Experiment
from loriini.recipes import quickstart_run

LENGTH, BATCH_SIZE, LONGEST = 1024, 4, 6000
"""Whole documents of up to LONGEST characters, of which an instance of LENGTH tokens holds several."""


def main() -> None:
    """Train and score the four cells."""
    experiment = Experiment.parse(steps=1200)
    corpora = experiment.prepare(("similar", "random"), LENGTH, LONGEST)
    runs = {
        f"{design}-{order}": replace(
            quickstart_run(design, "small", experiment.steps, 0),
            corpus=(corpus,),
            length=LENGTH,
            batch_size=BATCH_SIZE,
        )
        for design in ("dense", "lory")
        for order, corpus in corpora.items()
    }
    experiment.compare(runs, experiment="similar_batching", longest_document_characters=LONGEST)


if __name__ == "__main__":
    main()
