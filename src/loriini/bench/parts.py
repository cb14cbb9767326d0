"""The comparisons of the benchmark: training steps, one layer's FFN, and decoding."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from loriini.bench.fitting import that_fits
from loriini.bench.models import (
    bench_run,
    llama,
    mixtral_case,
    on_device,
    run_config,
    step_case,
    weight_dtype,
)
from loriini.bench.operations import Machine
from loriini.bench.sizes import BenchSize
from loriini.bench.timing import Case, Work
from loriini.common.hardware import autocast, autocast_dtype, pick_device
from loriini.model.generate.cache import CACHE
from loriini.model.low_precision import experts_cast_once
from loriini.routing.unit import RoutingContext, unit_layout
from loriini.train.config import TrainConfig


@dataclass(frozen=True)
class Comparison:
    """Cases that take turns with their baseline; one run of each takes `steps` of `tokens` tokens."""

    what: str
    baseline: Case
    cases: Sequence[Case]
    tokens: int
    steps: int = 1

    @classmethod
    def of_steps(cls, baseline: Case, cases: Sequence[Case], size: BenchSize) -> "Comparison":
        """Training steps of the size's batch."""
        return cls("train_step", baseline, cases, size.batch_size * size.length, size.steps)


def merged_steps(size: BenchSize) -> Iterator[Comparison]:
    """Lory's training steps and those of the dense model of its active size, at each micro-batch."""
    for single in single_sizes(size):
        yield Comparison.of_steps(dense_case(single), lory_cases(single, single.experts), single)


def recomputed_steps(size: BenchSize) -> Iterator[Comparison]:
    """Lory's training steps that merge again in the backward pass, with the fewest and the most experts."""
    for single in single_sizes(size):
        cases = lory_cases(single, (size.experts[0], size.experts[-1]), recompute_merge=True)
        yield Comparison.of_steps(dense_case(single), cases, single)


def swept_steps(size: BenchSize) -> Iterator[Comparison]:
    """The same with other segment lengths and micro-batches, with the fewest experts."""
    sizes = [replace(size, segment_length=length) for length in size.swept_segments]
    sizes += [replace(size, micro_batch_sizes=(number,)) for number in size.swept_micro_batches]
    for swept in sizes:
        yield Comparison.of_steps(dense_case(swept), lory_cases(swept, swept.experts[:1]), swept)


def single_sizes(size: BenchSize) -> list[BenchSize]:
    """The size at each of its micro-batches."""
    return [replace(size, micro_batch_sizes=(number,)) for number in size.micro_batch_sizes]


def lory_cases(size: BenchSize, experts: Sequence[int], **model: Any) -> list[Case]:
    """Lory's training steps with each number of experts, of those that the memory holds."""
    runs = [that_fits(bench_run(size, "lory", n, **model)) for n in experts]
    return [step_case("lory", run, size.steps) for run in runs if run]


def sparse_steps(size: BenchSize) -> Iterator[Comparison]:
    """Steps of top-2 and of transformers' Mixtral.

    Both hold their weights in the dtype of computation: under autocast transformers' grouped products would
    stay in float32, a slow baseline. Each has its own loss: transformers holds all logits.
    """
    sparse = sparse_size(size)
    for experts in sparse.mixtral_experts:
        run = bench_run(sparse, "mixtral", experts)
        ours = step_case("mixtral", replace(run, precision="fp32"), dtype=weight_dtype())
        yield Comparison.of_steps(mixtral_case(sparse, experts), [ours], sparse)


def aoe_steps(size: BenchSize) -> Iterator[Comparison]:
    """Steps of AoE and of top-2 of equal parameters, with the fewest experts."""
    sparse, experts = sparse_size(size), size.experts[0]
    top2 = step_case("mixtral", bench_run(sparse, "mixtral", experts))
    aoe = [step_case(f"aoe r={r}", bench_run(sparse, "aoe", experts, low_rank=r)) for r in sparse.low_ranks]
    yield Comparison.of_steps(top2, aoe, sparse)


def sparse_size(size: BenchSize) -> BenchSize:
    """The size of designs that select experts: one micro-batch a step."""
    instances = size.sparse_batch_size
    return replace(size, batch_size=instances, micro_batch_sizes=(instances,), steps=1)


def dense_case(size: BenchSize) -> Case:
    """Training steps of the dense model."""
    return step_case("dense", bench_run(size, "dense", 1), size.steps)


def ffns(size: BenchSize) -> Iterator[Comparison]:
    """Forward and backward of one layer's mixture, routing and merging included, and of a dense FFN."""
    dense, *cases = (
        Case(name, n, partial(build_ffn, bench_run(size, name, n)))
        for name, n in [("dense", 1), *(("lory", n) for n in size.experts)]
    )
    yield Comparison("ffn", dense, cases, size.batch_size * size.length)


def build_ffn(run: TrainConfig) -> Work:
    """A step's micro-batches through the mixture of a model of one layer, whose experts are cast once."""
    config = run_config(replace(run, model=replace(run.model, num_hidden_layers=1)))
    model = on_device(config).train()
    (mixture,) = model.model.mixtures
    context = RoutingContext(run.instances_at_once(), run.length, device=pick_device())
    layout = unit_layout(mixture.config.routing, context)
    shape = (run.instances_at_once(), run.length, config.hidden_size)
    x = torch.randn(shape, device=pick_device(), requires_grad=True)
    gradient = torch.randn(shape, device=pick_device())

    def work() -> None:
        with experts_cast_once(model, autocast_dtype(run.precision)):
            for _ in range(run.batch_size // run.instances_at_once()):
                with autocast(run.precision):
                    y = mixture(x, context, layout)[0]
                y.backward(gradient.to(y.dtype))
                x.grad = None
        mixture.zero_grad(set_to_none=True)

    work()
    return work


def decoding(size: BenchSize) -> Iterator[Comparison]:
    """Greedy tokens after a prompt, and a prompt alone, of Lory and of a Llama of its active size."""
    experts = (size.experts[0], size.experts[-1])
    for batch in size.decode_batches:
        build = partial(build_generation, size, batch)
        tokens = batch * size.new_tokens
        yield decoded(size, f"batch {batch}", tokens, build, partial(decoding_seconds, size, batch), experts)
    build = partial(build_prefill, size)
    least = partial(prefill_seconds, size)
    yield decoded(size, f"prefill {size.prefill}", size.prompts * size.prefill, build, least, experts)


def decoded(
    size: BenchSize,
    label: str,
    tokens: int,
    build: Callable[[Callable[[], nn.Module]], Work],
    least: Callable[[int, Machine], float],
    experts: Sequence[int],
) -> Comparison:
    """Lory with each number of experts, relative to the Llama; `least` are seconds by experts and machine."""

    def case(name: str, n: int, make: Callable[[], nn.Module]) -> Case:
        return Case(name, n, partial(build, make), least=partial(least, n))

    theirs = case(f"transformers LlamaForCausalLM, {label}", 1, partial(llama, size))
    ours = [case("lory", n, partial(build_lory, size, n)) for n in experts]
    return Comparison("decode", theirs, ours, tokens)


def decoding_seconds(size: BenchSize, batch: int, experts: int, machine: Machine) -> float:
    """A lower bound of the seconds of the FFNs in decoding: each token reads weights and multiplies by them.

    Either each sequence has its merged FFN, which is read alone, or all experts are read and multiplied.
    """
    moved, products = ffn_seconds(size, machine)
    merged = max(batch * moved, batch * products)
    summed = max(experts * moved, batch * experts * products)
    return size.shape.num_hidden_layers * size.new_tokens * min(merged, summed)


def prefill_seconds(size: BenchSize, experts: int, machine: Machine) -> float:
    """A lower bound of the seconds in which prompts' FFNs get their weights.

    The dense FFN is read once; all experts are read, and the FFN that the prompt merges is written and read.
    """
    moved, _ = ffn_seconds(size, machine)
    return size.prompts * size.shape.num_hidden_layers * moved * (1 if experts == 1 else experts + 2)


def ffn_seconds(size: BenchSize, machine: Machine) -> tuple[float, float]:
    """Seconds in which one FFN's weights are read, and in which one token is multiplied by them."""
    weights = 3 * size.shape.hidden_size * size.shape.intermediate_size
    return weights * weight_dtype().itemsize / machine.bandwidth, 2 * weights / machine.flops


def build_lory(size: BenchSize, experts: int) -> nn.Module:
    """Lory of a number of experts."""
    return on_device(run_config(bench_run(size, "lory", experts)), weight_dtype())


def build_generation(size: BenchSize, batch: int, make: Callable[[], nn.Module]) -> Work:
    """`new_tokens` greedy tokens for each of `batch` sequences, whose prompts are in a cache already."""
    model: Any = make().eval()

    def generate(ids: torch.Tensor, tokens: int, **cached: Any) -> Any:
        return model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
            return_dict_in_generate=True,
            **cached,
        )

    begun = generate(random_ids(size, batch, size.prompt), 1)
    cache = getattr(begun, CACHE)

    def work() -> torch.Tensor:
        ids = generate(begun.sequences, size.new_tokens, **{CACHE: cache}).sequences
        cache.crop(-size.new_tokens)
        return cast(torch.Tensor, ids)

    return work


def build_prefill(size: BenchSize, make: Callable[[], nn.Module]) -> Work:
    """Each of `prompts` into a cache of its own, with the last token's logits."""
    model = make().eval()
    ids = random_ids(size, size.prompts, size.prefill)

    def prefill() -> None:
        with torch.no_grad():
            for prompt in ids.split(1):
                model(prompt, use_cache=True, logits_to_keep=1)

    prefill()
    return prefill


def random_ids(size: BenchSize, batch: int, length: int) -> torch.Tensor:
    """Token ids (batch, length)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(1, size.vocab_size, (batch, length), generator=generator).to(pick_device())


COMPARISONS: dict[str, Callable[[BenchSize], Iterator[Comparison]]] = {
    "train": merged_steps,
    "recompute": recomputed_steps,
    "sweep": swept_steps,
    "sparse": sparse_steps,
    "aoe": aoe_steps,
    "ffn": ffns,
    "decode": decoding,
}
