"""The toy study of Autonomy of Experts (appendix B): who classifies what, by a router or by activations.

python benchmarks/aoe_toy.py --results benchmarks/results/aoe_toy.json
"""

import argparse
import time
from dataclasses import asdict
from pathlib import Path

import torch

from loriini.atomic import write_json
from loriini.hardware import describe_machine
from loriini.reproduce.toy import MODELS, Study, train_classifier


def main() -> None:
    """Train both classifiers with every seed and write what was measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, required=True, help="the JSON to write")
    path = parser.parse_args().results
    torch.set_num_threads(1)
    study = Study()
    rows = [
        {"name": name, "seed": seed, "measured": list(train_classifier(name, seed, study))}
        for name in MODELS
        for seed in range(study.seeds)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"experiment": "aoe_toy", "date": time.strftime("%Y-%m-%d"), "machine": describe_machine()}
    routing = {name: design.to_dict() for name, design in MODELS.items()}
    write_json(path, {**about, "study": asdict(study), "routing": routing, "results": rows})


if __name__ == "__main__":
    main()
