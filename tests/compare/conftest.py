"""A comparison small enough for tests: three designs, two seeds, trained in this process."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loriini.cli import main
from loriini.compare import job
from loriini.compare.trainings import Training
from loriini.train.corpora import read_corpora
from loriini.train.loop import train
from runs import prepared

SETTINGS = {
    "model.hidden_size": 32,
    "model.intermediate_size": 48,
    "model.num_experts": 3,
    "model.num_hidden_layers": 1,
    "routing.segment_length": 8,
    "length": 32,
    "batch_size": 2,
    "steps": 12,
    "warmup.dense_share": 0.05,
    "precision": "fp32",
}


@dataclass(frozen=True)
class Compared:
    """A finished comparison: the arguments that made it, its results and its page."""

    arguments: list[str]
    corpus: Path
    heldout: Path
    out: Path

    @property
    def results(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "results.json").read_text())
        return found

    @property
    def page(self) -> str:
        return (self.out / "report.html").read_text()

    def of(self, name: str) -> dict[str, Any]:
        return next(v for v in self.results["variants"] if v["name"] == name)

    def folder(self, name: str, seed: int) -> Path:
        (cell,) = (c for c in self.results["cells"] if (c["name"], c["seed"]) == (name, seed))
        return self.out / "runs" / cell["folder"]


def all_trained_here(trainings: Sequence[Training], jobs: int = 1) -> dict[Path, str]:
    """What `train_all` does, without its processes."""
    for training in trainings:
        if not training.is_done:
            train(training.run, read_corpora(training.run.corpus), training.folder)
    return {}


def compare_here(*arguments: object) -> None:
    """`loriini compare` in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "train_all", all_trained_here)
        main(["compare", *map(str, arguments)])


def overrides(**changes: object) -> list[str]:
    """SETTINGS with changes (`routing__top_k`) as arguments."""
    settings = SETTINGS | {name.replace("__", "."): value for name, value in changes.items()}
    return [part for name, value in settings.items() for part in (f"--{name}", str(value))]


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    folder = tmp_path_factory.mktemp("compare")
    corpus = prepared(folder / "corpus", length=32).folder
    heldout = folder / "heldout.jsonl"
    with open(heldout, "w") as file:
        for i in range(100, 140):
            text = f"{i} times {i} is {i * i}, they say. " * 3
            file.write(json.dumps({"text": text, "domain": ("odd", "even")[i % 2]}) + "\n")
    arguments = ["--corpus", str(corpus), "--heldout", str(heldout), *overrides()]
    out = folder / "out"
    compare_here("dense", "lory", "smear", "--seeds", 2, "--out", out, *arguments)
    return Compared(arguments, corpus, heldout, out)
