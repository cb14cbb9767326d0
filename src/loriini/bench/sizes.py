"""The sizes that are measured on a CPU and on a GPU."""

from dataclasses import dataclass, replace

from loriini.common.hardware import pick_device
from loriini.train.config import ModelShape


@dataclass(frozen=True)
class BenchSize:
    """The sizes of models and steps, and how often each is measured."""

    shape: ModelShape
    vocab_size: int
    length: int
    """Tokens of an instance."""
    batch_size: int
    """Instances of a training step."""
    micro_batch_sizes: tuple[int, ...]
    """Instances of a micro-batch; the first is used where only one is measured."""
    sparse_batch_size: int
    """Instances of a training step of designs that select experts, in one micro-batch."""
    low_ranks: tuple[int, ...]
    """AoE's, scaled to `intermediate_size` as the paper's 64 and 256 are to 2816; multiples of 8, whose rows
    grouped products take in bfloat16."""
    swept_segments: tuple[int, ...] = (128, 512)
    """Segment lengths measured besides `segment_length`, with the fewest experts."""
    swept_micro_batches: tuple[int, ...] = ()
    """Micro-batches measured besides `micro_batch_sizes`."""
    rounds: int = 8
    """An even number: each case is measured before and after the others equally often."""
    settling: int = 1
    """Rounds before these that do not count: caches and clocks settle in them."""
    repeats: int = 1
    """How often each model is measured in a round, once it is built."""
    steps: int = 1
    """Training steps measured in a round."""
    experts: tuple[int, ...] = (8, 16, 32)
    mixtral_experts: tuple[int, ...] = (8, 64)
    segment_length: int = 256
    decode_batches: tuple[int, ...] = (1, 8, 16, 64)
    prompt: int = 128
    """Tokens of a prompt."""
    new_tokens: int = 128
    """Tokens generated after it."""
    prefill: int = 512
    """Tokens of a prompt whose processing is measured by itself."""
    prompts: int = 8
    """How many of these are processed, one after the other."""
    compile: bool = False
    """Compile the layers of every training model."""

    @property
    def longest(self) -> int:
        """The longest context in tokens."""
        return max(self.length, self.prefill + 1, self.prompt + self.new_tokens)


CPU = BenchSize(
    ModelShape(512, 1408, 4, 8),
    vocab_size=8192,
    length=2048,
    batch_size=16,
    micro_batch_sizes=(8,),
    sparse_batch_size=4,
    low_ranks=(32, 128),
    swept_micro_batches=(2, 16),
)
CUDA = BenchSize(
    ModelShape(1024, 2816, 24, 16),
    vocab_size=32_000,
    length=4096,
    batch_size=32,
    micro_batch_sizes=(4, 8, 16),
    sparse_batch_size=8,
    low_ranks=(64, 256),
    swept_micro_batches=(1,),
    rounds=2,  # building compiles, and times vary little from one build to another
    settling=0,
    repeats=4,
    steps=2,
    compile=True,
)
QUICK = BenchSize(
    ModelShape(64, 176, 2, 4),
    vocab_size=512,
    length=256,
    batch_size=4,
    micro_batch_sizes=(2,),
    sparse_batch_size=2,
    low_ranks=(8, 16),
    swept_segments=(32,),
    rounds=2,
    experts=(4, 8),
    mixtral_experts=(4,),
    segment_length=64,
    decode_batches=(1, 4),
    prompt=16,
    new_tokens=8,
    prefill=64,
    prompts=2,
)
BENCH_SIZES = {
    ("cpu", False): CPU,
    ("cpu", True): QUICK,
    ("cuda", False): CUDA,
    ("cuda", True): replace(CUDA, shape=ModelShape(1024, 2816, 4, 16)),
}
"""By device, and whether the benchmark is a quick one."""


def bench_size(quick: bool = False) -> BenchSize:
    """The sizes for this machine."""
    return BENCH_SIZES[pick_device().type, quick]
