"""A finished job with tiny models, on documents of three domains."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from loriini.cli import main
from loriini.data.prepare.similarity import lsa
from loriini.quickstart import job
from loriini.recipes.small import SIZES, Size
from loriini.train.config import ModelShape

STEPS = 12
DOMAINS = ("cooking", "ledger", "<b>code</b>[/b]")
SECTIONS = [
    "What was trained, on what",
    "Learning",
    "Perplexity by domain",
    "Use of experts",
    "Who routes where",
    "Similar documents",
    "Samples",
    "Time and memory",
    "What to try next",
]
"""The headings of a report."""


def text(domain: str, rng: np.random.Generator) -> str:
    """A few lines that could be of no other domain."""
    a, b, c = rng.integers(1, 999, 3)
    lines = {
        "cooking": f"Stir {a} grams of flour into {b} of butter, and bake it for {c} minutes until golden.\n",
        "ledger": f"{a:06}.{b % 100:02} EUR | account {c} | debit\n",
        DOMAINS[2]: f"def f_{a}(x, y):\n    return x * {b} + y['<script>'] - {c}\n\n",
    }
    return lines[domain] * int(rng.integers(12, 18))


def shrink(patch: pytest.MonkeyPatch) -> None:
    """Make the quickstart's small size smaller, and have a small encoder."""
    patch.setitem(SIZES, "small", Size(ModelShape(32, 48, 2, 2), 384, 20, 4))
    patch.setattr(lsa, "FEATURES", 1 << 10)
    patch.setattr(lsa, "MOST_DIMENSIONS", 16)


@pytest.fixture(scope="package", autouse=True)
def smallest() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        patch.setattr(job, "SAMPLE_TOKENS", 8)
        yield


@pytest.fixture(scope="package")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("documents") / "mixed.jsonl"
    with open(path, "w") as file:
        for i in range(360):
            record = {"id": f"d{i}", "text": text(DOMAINS[i % 3], rng), "domain": DOMAINS[i % 3]}
            file.write(json.dumps(record) + "\n")
    return path


def arguments(documents: Path, out: Path, *more: str) -> list[str]:
    return ["quickstart", "--documents", str(documents), "--out", str(out), "--steps", str(STEPS), *more]


@pytest.fixture(scope="package")
def out(documents: Path, smallest: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished job."""
    folder = tmp_path_factory.mktemp("job") / "out"
    main(arguments(documents, folder))
    return folder
