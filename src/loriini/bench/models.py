"""What is measured: sizes, models (ours and transformers'), their training steps, memory and decoding."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from loriini.bench.timing import Work, synchronize
from loriini.common.hardware import autocast, autocast_dtype, pick_device
from loriini.estimate.activations import merged_parameters, saved_bytes
from loriini.estimate.choice import choose, memory_here
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.parallel.mesh import SINGLE_PROCESS
from loriini.parallel.sharding import build_model
from loriini.routing import DESIGNS
from loriini.train.config import ModelShape, TrainConfig
from loriini.train.optimizer import make_optimizer, take_step
from loriini.train.run_progress import RunProgress
from loriini.train.speed import SpeedConfig, compile_layers, speed_up
from loriini.train.step import Batch, Reader, TrainingState, training_step

WARMUP_STEPS = 3
"""Steps before the measured ones. The first allocates the optimizer's state in memory that the previous case
freed, and the second may still need new memory: with one step, a case could be twice as fast after itself as
after another."""
SHARED = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "max_position_embeddings"),
)
"""Fields of our configuration that have the same names in transformers'."""


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
    rounds: int = 4
    """An even number: each case is measured before and after the others equally often."""
    experts: tuple[int, ...] = (8, 16, 32)
    sparse_experts: tuple[int, ...] = (8, 64)
    segment_length: int = 256
    decode_batches: tuple[int, ...] = (1, 8)
    new_tokens: int = 128
    """Tokens that are generated after a prompt of as many."""


CPU = BenchSize(ModelShape(512, 1408, 4, 8, vocab_size=8192), length=2048, batch_size=16, micro_batch_size=8)
CUDA = BenchSize(
    ModelShape(1024, 2816, 24, 16, vocab_size=32_000), length=4096, batch_size=32, micro_batch_size=4
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


def bench_run(size: BenchSize, design: str, experts: int, **model: Any) -> TrainConfig:
    """The run whose steps are measured; `model` are further fields of its `ModelShape`.

    What it leaves to `auto` is chosen for this machine's memory, as in `loriini train`.
    """
    longest = max(size.length, 2 * size.new_tokens)
    run = TrainConfig(
        name=design,
        routing=replace(DESIGNS[design], segment_length=size.segment_length),
        model=replace(size.shape, num_experts=experts, max_position_embeddings=longest, **model),
        speed=SpeedConfig(compile=pick_device().type == "cuda"),
        batch_size=size.batch_size,
        micro_batch_size=size.micro_batch_size,
        length=size.length,
    )
    return choose(run, run_config(run), 1, memory_here())[0]


def run_config(run: TrainConfig) -> LoriiniConfig:
    """The configuration of a run's model."""
    assert run.model.vocab_size
    return run.config(run.model.vocab_size)


def on_device(config: LoriiniConfig, dtype: torch.dtype = torch.float32) -> LoriiniForCausalLM:
    """A new model, initialised on the device where it computes."""
    with torch.device(pick_device()):
        return LoriiniForCausalLM(config).to(dtype)


def weight_dtype() -> torch.dtype:
    """The dtype of weights in cases without autocast: the one that autocast would compute in."""
    return autocast_dtype("auto") or torch.float32


def random_ids(vocab_size: int, batch: int, length: int, seed: int = 0) -> Tensor:
    """Token ids (batch, length)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, vocab_size, (batch, length), generator=generator).to(pick_device())


def reader(run: TrainConfig) -> Reader:
    """Reads random tokens, the same for every run with the same batch."""
    vocab_size = run_config(run).vocab_size

    def read(consumed: int) -> tuple[Batch, int]:
        ids_BL = random_ids(vocab_size, run.batch_size, run.length + 1, seed=consumed)
        return Batch(ids_BL), consumed + run.batch_size

    return read


def start(run: TrainConfig, dtype: torch.dtype = torch.float32) -> tuple[TrainingState, Reader]:
    """A new model with its optimizer, and random batches."""
    torch.manual_seed(0)
    model = build_model(run_config(run), SINGLE_PROCESS, run.precision, partial(on_device, dtype=dtype))
    speed_up(model, run.speed)
    return TrainingState(model, make_optimizer(model, run.optimizer), RunProgress()), reader(run)


def build_steps(run: TrainConfig, dtype: torch.dtype = torch.float32) -> Work:
    """A training step of a new model by `train.step.training_step`, whole as in `loriini train`.

    Weights are in `dtype`; the model computes in that, or if it is float32 in the run's precision. First,
    `WARMUP_STEPS` steps of one micro-batch run.
    """
    state, read = start(run, dtype)
    small = replace(run, batch_size=run.instances_at_once())
    for _ in range(WARMUP_STEPS):
        training_step(state, small, reader(small))
    return lambda: training_step(state, run, read)


def build_mixtral_steps(run: TrainConfig) -> Work:
    """A training step of transformers' Mixtral with grouped products: one micro-batch, clipping, AdamW.

    Its weights are in `weight_dtype`; its layers are compiled if ours are. It reads the same batches as our
    steps: with other batches, experts get other numbers of tokens, for which libraries may compile products
    anew.
    """
    torch.manual_seed(0)
    config = MixtralConfig(
        **shared_fields(run_config(run)),
        num_local_experts=run.model.num_experts,
        num_experts_per_tok=run.routing.top_k,
        output_router_logits=True,
        router_aux_loss_coef=run.routing.load_balance,
    )
    config._experts_implementation = "grouped_mm"
    with torch.device(pick_device()):
        model = MixtralForCausalLM(config).to(weight_dtype()).train()
    if run.speed.compile:
        compile_layers(model.model.layers)
    optimizer, read, consumed = make_optimizer(model, run.optimizer), reader(run), 0

    def step() -> None:
        nonlocal consumed
        batch, consumed = read(consumed)
        ids_BL, labels_BL = batch.tokens_BL[:, :-1], batch.tokens_BL[:, 1:].contiguous()
        loss: Tensor = model(ids_BL, labels=labels_BL, shift_labels=labels_BL, use_cache=False).loss
        loss.backward()
        take_step(model, optimizer, run.optimizer.clip, loss.detach())
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    for _ in range(WARMUP_STEPS):
        step()
    return step


def llama(config: LoriiniConfig, dtype: torch.dtype) -> LlamaForCausalLM:
    """transformers' Llama of the size of a dense model."""
    with torch.device(pick_device()):
        return LlamaForCausalLM(LlamaConfig(**shared_fields(config))).to(dtype)


def shared_fields(config: LoriiniConfig) -> dict[str, Any]:
    """The values of a configuration's SHARED fields."""
    return {name: getattr(config, name) for name in SHARED}


def build_generation(size: BenchSize, batch: int, make: Callable[[], nn.Module]) -> Work:
    """Read `batch` prompts of `new_tokens` and generate as many greedy tokens after each."""
    model: Any = make().eval()
    ids_BL = random_ids(model.config.vocab_size, batch, size.new_tokens)
    lengths = {"max_new_tokens": size.new_tokens, "min_new_tokens": size.new_tokens}
    generate = partial(model.generate, ids_BL, attention_mask=torch.ones_like(ids_BL), **lengths)
    work = partial(generate, do_sample=False, pad_token_id=0)
    work()
    return work


def step_bytes(run: TrainConfig) -> dict[str, int]:
    """Bytes in use in a step's second micro-batch, when the weights already have gradients, by part.

    `merged`, the experts' merged weights that are kept, is part of `activations`. On CUDA these are the
    allocator's peak beyond the other parts, gradients of activations included. On a CPU, whose allocator
    keeps no such count, they are what the forward pass saves for the backward pass, autocast's copies of
    weights included.
    """
    size, config, dtype = run.instances_at_once(), run_config(run), autocast_dtype(run.precision)
    run = replace(run, batch_size=2 * size, micro_batch_size=size)
    state, read = start(run)
    weights = sum(p.numel() * p.element_size() for p in state.model.parameters())
    parts = {"weights": weights, "gradients": weights, "optimizer": 2 * weights}
    if pick_device().type == "cuda":
        training_step(state, run, read)
        synchronize()
        torch.cuda.reset_peak_memory_stats()
        training_step(state, run, read)
        activations = torch.cuda.max_memory_allocated() - sum(parts.values())
    else:
        ids_BL = read(0)[0].tokens_BL[:size].clone()  # a slice would count as the whole batch

        def forward() -> object:
            with autocast(run.precision):
                return state.model(ids_BL[:, :-1], shift_labels=ids_BL[:, 1:], use_cache=False)

        activations = saved_bytes(state.model, forward)
    itemsize = (dtype or torch.float32).itemsize
    merged = merged_parameters(config, size, run.length) * itemsize * config.num_hidden_layers
    kept = 0 if config.recompute_merge else merged
    return {**parts, "activations": activations, "merged": kept, "total": sum(parts.values()) + activations}
