"""Sizes at which a benchmark takes seconds, and the scripts of `benchmarks/` as modules."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

from loriini.bench.models import BenchSize
from loriini.train.config import ModelShape

TINY = BenchSize(
    ModelShape(32, 48, 1, 2, vocab_size=96),
    length=32,
    batch_size=4,
    micro_batch_size=2,
    rounds=2,
    experts=(2, 4),
    sparse_experts=(4,),
    segment_length=8,
    decode_batches=(1, 3),
    new_tokens=4,
)
SCRIPTS = str(Path(__file__).parents[2] / "benchmarks")


def script(name: str) -> ModuleType:
    """A script of `benchmarks/`."""
    if SCRIPTS not in sys.path:
        sys.path.append(SCRIPTS)
    return importlib.import_module(name)


def write_text(folder: Path) -> list[Path]:
    """Training and held-out text of two domains."""
    written = []
    for domain, verb in (("sums", "is"), ("tales", "meets")):
        for side, numbers in (("train", range(300)), ("heldout", range(1000, 1030))):
            texts = (f"{i} and {i * i} {verb} {i * i + i}, they say of {verb} and {i}. " * 8 for i in numbers)
            lines = (json.dumps({"text": text, "domain": domain}) + "\n" for text in texts)
            written.append(folder / f"{domain}.{side}.jsonl")
            written[-1].write_text("".join(lines))
    return written
