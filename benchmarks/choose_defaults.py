"""The measurements behind the quickstart's defaults: rates, moments, warm-up, segment length; three seeds.

python benchmarks/choose_defaults.py --text PATH… --out WORK --results results/choose_defaults.json
"""

from dataclasses import replace

from experiment import Experiment
from loriini.recipes import quickstart_run
from loriini.train.config import TrainConfig
from loriini.train.overrides.apply import override

RATES = (2e-3, 4e-3, 8e-3)
CHANGES = {
    "fresh-moments": "--warmup.moments=fresh",
    "no-warmup": "--warmup.dense_share=0",
    "router-rate-x4": "--optimizer.router_rate=4",
    "segment-128": "--routing.segment_length=128",
}
"""Of Lory, one at a time."""


def rates(name: str, run: TrainConfig) -> dict[str, TrainConfig]:
    """A run with every learning rate."""
    return {f"{name}-rate-{rate:g}": override(run, [f"--optimizer.learning_rate={rate}"]) for rate in RATES}


def main() -> None:
    """Both models over the learning rate, and Lory's changes."""
    experiment = Experiment.parse(steps=500)
    corpus = experiment.prepare()["similar"]
    dense, lory = (
        replace(quickstart_run(design, "small", experiment.steps, 0), corpus=(corpus,))
        for design in ("dense", "lory")
    )
    lory = override(lory, ["--routing.segment_length=64"])
    changed = {f"lory-{name}": override(lory, [change]) for name, change in CHANGES.items()}
    experiment.compare(rates("dense", dense) | rates("lory", lory) | changed, experiment="choose_defaults")


if __name__ == "__main__":
    main()
