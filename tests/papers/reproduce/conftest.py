"""One folder of all items, reproduced with runs of two steps in this process."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compare.conftest import all_trained_here
from loriini.cli import main
from loriini.data.jobs.lock import folder_lock
from loriini.papers.reproduce import job, measures
from loriini.papers.reproduce.experiments import computed, toy
from loriini.papers.reproduce.experiments.toy import Study
from loriini.papers.reproduce.scales import SCALES, TINY, Scale

SHAPES = dict.fromkeys(TINY.shapes, (16, 2, 2))
TEST = replace(
    TINY, shapes=SHAPES, vocab_size=300, steps=2, batch_size=2, length=24, segment_length=8, characters=20_000
)
TIMED = Scale("tiny", SHAPES, steps=1, batch_size=1, length=24, segment_length=8)
SOME = (
    *("lory-table4", "lory-fig7", "lory-fig3", "lory-fig6", "lory-table6", "lory-fig10"),
    *("design-choices-table3", "design-choices-assignment", "aoe-fig3", "aoe-table1", "aoe-fig5"),
)
"""Items that train little and use every measure among them."""
DOMAINS = ("arxiv", "books", "multi_de", "multi_fr", "python", "web", "wiki")


def write_text_folder(folder: Path) -> Path:
    """Sums in several words, a file for each domain."""
    folder.mkdir()
    for domain in DOMAINS:
        for side, numbers in (("train", range(30)), ("heldout", range(100, 112))):
            with open(folder / f"{domain}.{side}.jsonl", "w") as file:
                for i in numbers:
                    text = f"{domain}: {i} times {i} is {i * i}, they say. " * 3
                    file.write(json.dumps({"text": text, "id": f"{side}{i}", "domain": domain}) + "\n")
    return folder


@pytest.fixture(scope="session")
def tiny() -> Any:
    """Scales of two steps, and measurements that take no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCALES, "tiny", TEST)
        patch.setitem(computed.TIMED, "tiny", TIMED)
        patch.setitem(computed.ROUNDS, "tiny", 2)
        patch.setattr(toy, "STUDY", Study(16, steps=4, every=2, seeds=2))
        patch.setattr(job, "train_all", all_trained_here)
        patch.setattr(measures, "ANSWER", 8)
        yield


def made_once(name: str, make: Callable[[Path], object], factory: pytest.TempPathFactory) -> Path:
    """A folder's path, made by the first test process that needs it while the others wait."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with folder_lock(shared / f"{name}.lock", wait=True):
        if not (shared / name).exists():
            make(shared / f"{name}.part")
            (shared / f"{name}.part").rename(shared / name)
    return shared / name


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once("corpora", write_text_folder, tmp_path_factory)


@pytest.fixture(scope="session")
def reproduced(tiny: None, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which SOME items are reproduced with one seed; this process's own copy."""
    wanted = ["reproduce", *SOME, "--text", str(text), "--seeds", "1", "--out"]
    made = made_once("reproduced", lambda out: main([*wanted, str(out)]), tmp_path_factory)
    return shutil.copytree(made, tmp_path_factory.mktemp("reproduced") / "out")


@pytest.fixture(scope="session")
def all_reproduced(reproduced: Path, text: Path) -> Path:
    """The same folder with all items."""
    main(["reproduce", "all", "--text", str(text), "--seeds", "1", "--out", str(reproduced)])
    return reproduced


def results_of(out: Path, item: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / item / "results.json").read_text())
    return found
