"""Documents, a corpus and a run for the tests of the commands."""

import json
from pathlib import Path

import numpy as np
import pytest

from cli.calls import TRAIN, WORDS, Made
from loriini.cli import main
from loriini.data.prepare.similarity import lsa


def write_documents(path: Path, count: int = 240, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    with open(path, "w") as file:
        for i in range(count):
            domain = list(WORDS)[i % 2]
            text = " ".join(f"the {word} is number {i}" for word in rng.choice(WORDS[domain], 12))
            file.write(json.dumps({"text": text, "topic": domain}) + "\n")
    return path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("cli")
    documents = write_documents(folder / "documents.jsonl")
    prepare = ["prepare", "corpus", "--documents", documents, "--out", folder, "--domain-field", "topic"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lsa, "FEATURES", 1 << 10)
        patch.setattr(lsa, "MOST_DIMENSIONS", 16)
        main([*map(str, prepare), "--length", "64", "--tokenizer", "bpe:320"])
    made = Made(documents, folder / "corpus", folder / "run")
    main(["train", "tiny-lory", "--out", str(made.run), "--corpus", str(made.corpus), *TRAIN])
    return made


@pytest.fixture(scope="session")
def heldout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of both domains that are not in the corpus."""
    return write_documents(tmp_path_factory.mktemp("cli") / "heldout.jsonl", seed=1)
