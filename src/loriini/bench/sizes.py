"""The sizes that are measured on a CPU and on a GPU."""

from dataclasses import dataclass, replace

from loriini.common.hardware import pick_device
from loriini.train.config import ModelShape


@dataclass(frozen=True)
class BenchSize:
    """The sizes of models and steps, and how often each is measured."""

    shape: ModelShape
    length: int
    """Tokens of an instance."""
    batch_size: int
    """Instances of a training step."""
    micro_batch_size: int
    """Instances of a micro-batch, and of a step of designs that select experts."""
    rounds: int = 8
    """An even number: each case is measured before and after the others equally often."""
    experts: tuple[int, ...] = (8, 16, 32)
    sparse_experts: tuple[int, ...] = (8, 64)
    segment_length: int = 256
    decode_batches: tuple[int, ...] = (1, 8)
    new_tokens: int = 128
    """Tokens that are generated after a prompt of as many."""


CPU = BenchSize(ModelShape(512, 1408, 4, 8, vocab_size=8192), length=2048, batch_size=16, micro_batch_size=8)
CUDA = BenchSize(
    ModelShape(1024, 2816, 24, 16, vocab_size=32_000),
    length=4096,
    batch_size=32,
    micro_batch_size=4,
    rounds=4,  # every round compiles anew
)
QUICK = BenchSize(
    ModelShape(64, 176, 2, 4, vocab_size=512),
    length=256,
    batch_size=4,
    micro_batch_size=2,
    rounds=2,
    experts=(4, 8),
    sparse_experts=(4,),
    segment_length=64,
    decode_batches=(1, 4),
    new_tokens=8,
)


def bench_size(quick: bool = False) -> BenchSize:
    """The sizes for this machine; quick ones have small models, on a GPU few layers."""
    if pick_device().type == "cuda":
        return replace(CUDA, shape=replace(CUDA.shape, num_hidden_layers=4)) if quick else CUDA
    return QUICK if quick else CPU
