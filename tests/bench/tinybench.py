"""Sizes at which a benchmark takes seconds, and the scripts of `benchmarks/` as modules."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

from loriini.bench.sizes import BenchSize
from loriini.train.run import ModelShape

TINY = BenchSize(
    ModelShape(32, 48, 1, 2),
    vocab_size=96,
    length=32,
    batch_size=4,
    micro_batch_sizes=(2,),
    sparse_batch_size=2,
    low_ranks=(8,),
    swept_segments=(16,),
    rounds=2,
    experts=(2, 4),
    mixtral_experts=(4,),
    segment_length=8,
    decode_batches=(1, 3),
    prompt=4,
    new_tokens=3,
    prefill=16,
)
SCRIPTS = str(Path(__file__).parents[2] / "benchmarks")


def script(name: str) -> ModuleType:
    """A script of `benchmarks/`."""
    if SCRIPTS not in sys.path:
        sys.path.append(SCRIPTS)
    return importlib.import_module(name)
