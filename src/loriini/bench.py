"""Benchmarks: speed and memory relative to baselines measured in the same process.

What is compared is built first and then run in turn (A, B, A, B, …), so that other load on the machine
affects all alike. A ratio is the median over rounds of the baseline's seconds divided by the case's own.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from loriini.estimate.activations import saved_bytes
from loriini.hardware import autocast, has_bf16, keep_freed_memory, pick_device
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.progress import progress
from loriini.routing import DESIGNS
from loriini.routing.unit import RoutingContext, unit_layout
from loriini.train.optimizer import OptimizerConfig, make_optimizer
from loriini.train.run import ModelShape

Row = dict[str, Any]
Work = Callable[[], object]


@dataclass(frozen=True)
class BenchSize:
    """The sizes of the measured models, and how often each is run."""

    shape: ModelShape
    vocab_size: int
    length: int
    """Tokens of an instance."""
    batch_size: int
    """Instances of a micro-batch."""
    micro_batches: int
    """Micro-batches of a step."""
    ranks: tuple[int, ...]
    """AoE's low ranks, scaled to `intermediate_size` as the paper's 64 and 256 are to 2816."""
    runs: int
    """Counted rounds; one before them is not counted."""
    experts: tuple[int, ...] = (8, 16, 32)
    segment_length: int = 256
    prompt: int = 128
    """Tokens of a prompt."""
    new_tokens: int = 64
    """Tokens generated after it."""

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch."""
        return self.batch_size * self.length


CPU = BenchSize(
    ModelShape(256, 704, 4, 4), 2048, 1024, batch_size=8, micro_batches=1, ranks=(16, 64), runs=11
)
CUDA = BenchSize(
    ModelShape(1024, 2816, 6, 16), 32_000, 4096, batch_size=4, micro_batches=4, ranks=(64, 256), runs=15
)
BENCH_SIZES = {
    ("cpu", False): CPU,
    ("cpu", True): replace(CPU, shape=ModelShape(256, 704, 2, 4), batch_size=2, runs=5, new_tokens=32),
    ("cuda", False): CUDA,
    ("cuda", True): replace(CUDA, shape=ModelShape(1024, 2816, 2, 16), micro_batches=1, runs=5),
}
"""By device, and whether the benchmark is a quick one."""

MERGES = {"lory": False, "lory recompute_merge": True}
"""Lory's names in rows, by whether the backward pass merges experts again."""


@dataclass(frozen=True)
class Case:
    """Something to measure: its name in rows, and a function that runs it once."""

    name: str
    experts: int
    work: Work


def measure(quick: bool = False) -> list[Row]:
    """Run every comparison on this machine's device; returns a row for each case."""
    keep_freed_memory()
    torch.manual_seed(0)
    size = BENCH_SIZES[pick_device().type, quick]
    rows = []
    with progress("bench", len(COMPARISONS)) as advance:
        for comparison in COMPARISONS:
            advance(0, comparison.__name__.replace("_", " "))
            rows += comparison(size)
            advance()
    return rows


def lory_steps(size: BenchSize) -> list[Row]:
    """Training steps of Lory, compared with the dense model of its active size."""
    dense = Case("dense", 1, training(build(size, "dense", 1), size))
    cases = [
        Case(name, n, training(build(size, "lory", n, recompute_merge=again), size))
        for name, again in MERGES.items()
        for n in size.experts
    ]
    return compare("train_step", dense, cases, size.tokens * size.micro_batches, size.runs)


def mixtral_steps(size: BenchSize) -> list[Row]:
    """Training steps of the top-2 mixture, compared with transformers' Mixtral.

    Both hold their weights in the dtype of computation: under autocast transformers' grouped products would
    stay in float32, a slow baseline.
    """
    experts, dtype, design = size.experts[0], weight_dtype(), DESIGNS["mixtral"]
    config = MixtralConfig(
        **llama_fields(size),
        num_local_experts=experts,
        num_experts_per_tok=design.top_k,
        output_router_logits=True,
        router_aux_loss_coef=design.load_balance,
    )
    theirs = MixtralForCausalLM(config).to(pick_device(), dtype).train()
    ours = build(size, "mixtral", experts).to(dtype)
    baseline = Case("transformers MixtralForCausalLM", experts, training(theirs, size, "fp32"))
    cases = [Case("mixtral", experts, training(ours, size, "fp32"))]
    return compare("train_step", baseline, cases, size.tokens * size.micro_batches, size.runs)


def aoe_steps(size: BenchSize) -> list[Row]:
    """Training steps of autonomous experts, compared with the top-2 mixture of equal parameters."""
    experts = size.experts[0]
    top2 = Case("mixtral", experts, training(build(size, "mixtral", experts), size))
    cases = [
        Case(f"aoe r={r}", experts, training(build(size, "aoe", experts, low_rank=r), size))
        for r in size.ranks
    ]
    return compare("train_step", top2, cases, size.tokens * size.micro_batches, size.runs)


def ffns(size: BenchSize) -> list[Row]:
    """Forward and backward passes of one routed and merged FFN, compared with the dense FFN."""
    one = replace(size, shape=replace(size.shape, num_hidden_layers=1))
    dense = Case("dense", 1, one_layer(build(one, "dense", 1), one))
    cases = [Case("lory", n, one_layer(build(one, "lory", n), one)) for n in size.experts]
    return compare("ffn", dense, cases, size.tokens, size.runs)


def memory(size: BenchSize) -> list[Row]:
    """Memory of a micro-batch beyond weights, gradients and optimizer state: Lory's, compared with dense."""
    dense = memory_of(build(size, "dense", 1), size)
    used = {
        (name, n): memory_of(build(size, "lory", n, recompute_merge=again), size)
        for name, again in MERGES.items()
        for n in size.experts
    }
    return [row("memory", name, n, "dense", held / dense, size.tokens) for (name, n), held in used.items()]


def decoding(size: BenchSize) -> list[Row]:
    """Generation with a cache, prompt included: prompt-routed Lory, compared with a Llama of the active size.

    For a single sequence both read one FFN a layer; for a batch Lory reads one FFN for each sequence.
    """
    experts, dtype = size.experts[0], weight_dtype()
    lory = build(size, "lory", experts).to(dtype)
    llama = LlamaForCausalLM(LlamaConfig(**llama_fields(size))).to(pick_device(), dtype)
    rows = []
    for batch in (1, experts):
        name = f"transformers LlamaForCausalLM, batch {batch}"
        baseline = Case(name, 1, generation(llama, size, batch))
        cases = [Case("lory", experts, generation(lory, size, batch))]
        rows += compare("decode", baseline, cases, batch * size.new_tokens, size.runs)
    return rows


COMPARISONS: tuple[Callable[[BenchSize], list[Row]], ...] = (
    lory_steps,
    mixtral_steps,
    aoe_steps,
    ffns,
    memory,
    decoding,
)


def compare(what: str, baseline: Case, cases: Sequence[Case], tokens: int, runs: int) -> list[Row]:
    """A row for each case: its speed relative to the baseline's."""
    rounds = in_turn([baseline.work, *(case.work for case in cases)], runs)
    reference, *measured = zip(*rounds, strict=True)
    return [
        row(what, case.name, case.experts, baseline.name, speed(seconds, reference), tokens, seconds)
        for case, seconds in zip(cases, measured, strict=True)
    ]


def speed(seconds: Iterable[float], reference: Iterable[float]) -> float:
    """The median over rounds of the speed relative to the reference's in the same round."""
    return median(theirs / own for own, theirs in zip(seconds, reference, strict=True))


def in_turn(works: Sequence[Work], runs: int) -> Iterator[list[float]]:
    """Seconds of each work in each of `runs` rounds, after a first round that is not counted."""
    for i in range(runs + 1):
        seconds = [timed(work) for work in works]
        if i:
            yield seconds


def timed(work: Work) -> float:
    """Seconds that a work takes, asynchronous work of the device included."""
    synchronize()
    started = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - started


def synchronize() -> None:
    """Wait for the accelerator to finish."""
    if pick_device().type == "cuda":
        torch.cuda.synchronize()


def row(
    what: str,
    design: str,
    experts: int,
    baseline: str,
    ratio: float,
    tokens: int,
    seconds: Sequence[float] = (),
) -> Row:
    """One result; `median_s` is None where nothing was timed."""
    return {
        "what": what,
        "design": design,
        "experts": experts,
        "dtype": "bf16" if has_bf16(pick_device()) else "fp32",
        "ratio": round(ratio, 4),
        "baseline": baseline,
        "median_s": round(median(seconds), 6) if seconds else None,
        "runs": max(1, len(seconds)),
        "tokens_per_step": tokens,
    }


def weight_dtype() -> torch.dtype:
    """The dtype of weights where there is no autocast."""
    return torch.bfloat16 if has_bf16(pick_device()) else torch.float32


def llama_fields(size: BenchSize) -> dict[str, Any]:
    """The sizes, by the names of transformers' configurations."""
    ours = ("num_experts", "block", "dropout", "low_rank", "recompute_merge")
    shape = {name: value for name, value in asdict(size.shape).items() if name not in ours}
    heads, longest = size.shape.num_attention_heads, max(size.length, size.prompt + size.new_tokens)
    return {
        **shape,
        "vocab_size": size.vocab_size,
        "num_key_value_heads": heads,
        "max_position_embeddings": longest,
    }


def build(
    size: BenchSize, design: str, experts: int, low_rank: int | None = None, recompute_merge: bool = False
) -> LoriiniForCausalLM:
    """One of our models, in training mode on this machine's device."""
    routing = replace(DESIGNS[design], segment_length=size.segment_length)
    choices = {"num_experts": experts, "low_rank": low_rank, "recompute_merge": recompute_merge}
    config = LoriiniConfig(**llama_fields(size), **choices, routing=routing)
    return LoriiniForCausalLM(config).to(pick_device()).train()


def random_ids(size: BenchSize, batch: int, length: int) -> Tensor:
    """Token ids (B, L)."""
    return torch.randint(size.vocab_size, (batch, length), device=pick_device())


def training(model: nn.Module, size: BenchSize, precision: str = "auto") -> Work:
    """A training step: forward and backward of each micro-batch, then AdamW; without clipping or data."""
    optimizer = make_optimizer(model, OptimizerConfig())
    ids = random_ids(size, size.batch_size, size.length)

    def step() -> None:
        for _ in range(size.micro_batches):
            loss_of(model, ids, precision).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def loss_of(model: nn.Module, ids: Tensor, precision: str) -> Tensor:
    """The training loss of a micro-batch, auxiliary losses included."""
    with autocast(precision):
        loss: Tensor = model(ids, labels=ids, use_cache=False).loss
    return loss


def one_layer(model: LoriiniForCausalLM, size: BenchSize) -> Work:
    """Forward and backward of a model's first mixture, its routing included."""
    mixture = model.model.mixtures[0]
    context = RoutingContext(size.batch_size, size.length, device=pick_device())
    layout = unit_layout(mixture.design, context)
    shape = (size.batch_size, size.length, size.shape.hidden_size)
    x = torch.randn(shape, device=pick_device(), requires_grad=True)
    gradient = torch.randn(shape, device=pick_device())

    def work() -> None:
        with autocast("auto"):
            y = mixture(x, context, layout)[0]
        y.backward(gradient.to(y.dtype))
        x.grad = None
        mixture.zero_grad(set_to_none=True)

    return work


def generation(model: Any, size: BenchSize, batch: int) -> Work:
    """Greedy generation of `new_tokens` tokens a sequence."""
    model.eval()
    ids = random_ids(size, batch, size.prompt)
    tokens = {"max_new_tokens": size.new_tokens, "min_new_tokens": size.new_tokens}
    settings = {**tokens, "do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
    return lambda: model.generate(ids, **settings)


def memory_of(model: nn.Module, size: BenchSize) -> int:
    """Bytes that a micro-batch needs beyond weights, gradients and optimizer state.

    On CUDA the allocator's peak during forward and backward, minus what was allocated before. On a CPU,
    whose allocator keeps no such count, what the forward pass saves for the backward pass, including the
    bfloat16 copies of parameters.
    """
    ids = random_ids(size, size.batch_size, size.length)
    if pick_device().type != "cuda":
        return saved_bytes(model, lambda: loss_of(model, ids, "auto"))
    optimizer = make_optimizer(model, OptimizerConfig())
    loss_of(model, ids, "auto").backward()
    optimizer.step()
    synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loss_of(model, ids, "auto").backward()
    return torch.cuda.max_memory_allocated() - before
