"""A corpus of many small tasks, so that little text goes through all of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from loriini.data.prepare import prepare
from loriini.data.prepare.corpus import Corpus
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.prepare.similarity import lsa, neighbors
from loriini.data.prepare.text import documents, duplicates, stored
from loriini.data.prepare.tokenized import instances
from loriini.data.read import streams

SMALL = {
    (documents, "SHARD_CHARACTERS"): 5_000,
    (lsa, "FEATURES"): 1 << 10,
    (lsa, "MOST_DIMENSIONS"): 16,
    (neighbors, "CELL"): 60,
    (instances, "TOKENS_PER_TASK"): 2_000,
    (streams, "TASK_BYTES"): 6_000,
    (stored, "SLICE_CHARACTERS"): 2_000,
    (duplicates, "PAIRS_PER_TASK"): 50,
}


def shrink(change: Callable[[Any, str, object], None] = setattr) -> None:
    """Make the tasks of all stages small."""
    for (module, name), value in SMALL.items():
        change(module, name, value)


def write_texts(folder: Path) -> tuple[str, ...]:
    """Three files on four topics, with repeated texts and ids, a near-duplicate and a flawed line each."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for name in "abc":
        with open(folder / f"{name}.jsonl", "w") as file:
            for i in range(80):
                words = [f"topic{i % 4}word{j}" for j in rng.integers(0, 30, rng.integers(8, 30))]
                text = "said before" if i == 7 else " ".join(words)
                record = {"id": str(i), "text": text, "domain": f"topic{i % 4}"}
                file.write(json.dumps(record) + "\n" + ("{\n" if i == 9 else ""))
                if i == 40:
                    file.write(json.dumps({**record, "text": f"{text} {words[0]}"}) + "\n")
    return tuple(str(path) for path in sorted(folder.iterdir()))


def make(out: Path, texts: tuple[str, ...], workers: int) -> Corpus:
    settings = PrepareSettings(
        documents=texts,
        tokenizer="bpe:300",
        length=63,
        neighbors=8,
        heldout_share=0.1,
        on_error="skip",
        workers=workers,
    )
    return prepare.prepare(out, settings)
