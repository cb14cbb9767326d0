"""Every kind of design on the same text: short runs beside each other; does each learn, and at what speed?

python benchmarks/all_designs.py --text PATH… --out WORK --results results/all_designs.json --seeds 1
"""

from dataclasses import replace

from experiment import Experiment
from loriini.recipes import quickstart_run
from loriini.routing import DESIGNS

LEFT_OUT = {"smear", "sequence-top1", "global-top1", "token-top-p", "token-ec2"}
"""Designs that differ little from others that are here."""


def main() -> None:
    """One run a design, each with the quickstart's settings."""
    experiment = Experiment.parse(steps=300)
    corpus = experiment.prepare()["similar"]
    runs = {
        name: replace(quickstart_run(name, "small", experiment.steps, 0), corpus=(corpus,))
        for name in DESIGNS
        if name not in LEFT_OUT
    }
    experiment.compare(runs, experiment="all_designs")


if __name__ == "__main__":
    main()
