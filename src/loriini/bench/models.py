"""The measured models, ours and transformers', and their training steps."""

from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from loriini.bench.operations import Machine
from loriini.bench.sizes import BenchSize
from loriini.bench.timing import Case, Work
from loriini.bench.walk import seconds_by_group, walk_step
from loriini.common.hardware import autocast_dtype, has_bf16, pick_device
from loriini.data.batches.loader import BatchLoader
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.parallel.mesh import SINGLE_PROCESS
from loriini.parallel.sharding import build_model
from loriini.routing import DESIGNS
from loriini.train.config import TrainConfig
from loriini.train.optimizer import OptimizerConfig, make_optimizer, take_step
from loriini.train.run_progress import RunProgress
from loriini.train.speed import SpeedConfig, compile_layers, speed_up
from loriini.train.step import Reader, TrainingState, read_batch, training_step
from loriini.train.upcycle import WarmupConfig

INSTANCES = 64
"""Distinct random instances that steps read."""
WARMUP_STEPS = 3
"""Steps before the measured ones. The first allocates the optimizer's state in memory that the previous case
freed, and the second may still need new memory: with one step, a case could be twice as fast after itself as
after another."""


@dataclass(frozen=True)
class RandomInstances:
    """Instances of random tokens, made once and kept in memory."""

    tokens_NL: NDArray[np.int64]
    label_names: tuple[str, ...] = ()

    @classmethod
    def make(cls, vocab_size: int, length: int) -> "RandomInstances":
        """`INSTANCES` of them, the same at every call."""
        return cls(np.random.default_rng(0).integers(0, vocab_size, (INSTANCES, length + 1)))

    def __len__(self) -> int:
        return len(self.tokens_NL)

    @property
    def length(self) -> int:
        return self.tokens_NL.shape[1] - 1

    def read(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.tokens_NL[ids_B]

    def positions(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        raise NotImplementedError

    def labels(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.zeros(len(ids_B), dtype=np.int64)


def bench_run(size: BenchSize, design: str, experts: int, **model: Any) -> TrainConfig:
    """The run whose steps are measured; `model` are further fields of its `ModelShape`."""
    shape = replace(size.shape, num_experts=experts, vocab_size=size.vocab_size, **model)
    routing = replace(DESIGNS[design], segment_length=size.segment_length)
    speed = SpeedConfig(compile=size.compile)
    return TrainConfig(
        name=design,
        routing=routing,
        model=replace(shape, max_position_embeddings=size.longest),
        warmup=WarmupConfig(dense_share=0),
        speed=speed,
        batch_size=size.batch_size,
        micro_batch_size=size.micro_batch_sizes[0],
        length=size.length,
    )


def run_config(run: TrainConfig) -> LoriiniConfig:
    """The configuration of a run's model."""
    assert run.model.vocab_size
    return run.config(run.model.vocab_size)


def on_device(config: LoriiniConfig, dtype: torch.dtype = torch.float32) -> LoriiniForCausalLM:
    """A new model, initialised where it computes."""
    with torch.device(pick_device()):
        return LoriiniForCausalLM(config).to(dtype)


def step_case(name: str, run: TrainConfig, steps: int = 1, dtype: torch.dtype = torch.float32) -> Case:
    """Training steps of one of our models by `train.step.training_step`, whole as in `loriini train`.

    They hold weights in `dtype`; in float32, they compute in the run's precision.
    """
    config = run_config(run)
    segments = -(-run.length // run.routing.segment_length) if run.routing.segmented else 1
    details = {
        "segments": run.instances_at_once() * segments,
        "segment_length": run.routing.segment_length,
        "micro_batch_size": run.instances_at_once(),
        "recompute_merge": config.recompute_merge if config.is_mixture else None,
        "flops_per_token": config.flops_per_token(run.length),
        "parameters": config.parameters()[0],
    }
    build = partial(build_steps, run, steps, dtype)
    return Case(name, config.num_experts, build, details, least=partial(step_seconds, run))


@cache
def step_seconds(run: TrainConfig, machine: Machine) -> float:
    """The lower bound of a training step in seconds."""
    instances = run.instances_at_once()
    step = walk_step(
        run_config(run),
        instances,
        run.length,
        run.batch_size // instances,
        autocast_dtype(run.precision) or torch.float32,
        compiled=run.speed.compile,
        one_pass=pick_device().type == "cuda",
    )
    return sum(seconds_by_group(step, machine).values())


def build_steps(run: TrainConfig, steps: int, dtype: torch.dtype = torch.float32) -> Work:
    """A new model's training steps, after `WARMUP_STEPS` of one micro-batch."""
    state, read = start(run, dtype)
    small = replace(run, batch_size=run.instances_at_once())
    for _ in range(WARMUP_STEPS):
        training_step(state, small, reader(small))

    def work() -> None:
        for _ in range(steps):
            training_step(state, run, read)

    return work


def reader(run: TrainConfig) -> Reader:
    """Batches of random instances."""
    assert run.model.vocab_size
    instances = RandomInstances.make(run.model.vocab_size, run.length)
    return partial(read_batch, run, BatchLoader(instances, run.batch_size, run.seed), pick_device())


def start(run: TrainConfig, dtype: torch.dtype = torch.float32) -> tuple[TrainingState, Reader]:
    """A new model with its optimizer, and random batches."""
    torch.manual_seed(0)
    config = run_config(run)
    model = build_model(config, SINGLE_PROCESS, run.precision, partial(on_device, dtype=dtype))
    speed_up(model, run.speed)
    return TrainingState(model, make_optimizer(model, run.optimizer), RunProgress()), reader(run)


def mixtral_case(size: BenchSize, experts: int) -> Case:
    """Training steps of transformers' Mixtral with grouped products, otherwise like our own steps."""
    return Case("transformers MixtralForCausalLM", experts, partial(build_mixtral_steps, size, experts))


def build_mixtral_steps(size: BenchSize, experts: int) -> Work:
    """Its steps: loss and backward of one micro-batch, clipping, AdamW; weights as `weight_dtype`.

    They read the batches that our steps read. Another batch sends experts another number of tokens, for which
    libraries may compile a product anew.
    """
    torch.manual_seed(0)
    model = build_mixtral(size, experts)
    optimizer = make_optimizer(model, OptimizerConfig())
    read = reader(bench_run(size, "mixtral", experts))
    consumed = 0

    def step() -> None:
        nonlocal consumed
        batch, consumed = read(consumed)
        ids_BL, labels_BL = batch.tokens_BL[:, :-1], batch.tokens_BL[:, 1:].contiguous()
        loss: Tensor = model(ids_BL, labels=labels_BL, shift_labels=labels_BL, use_cache=False).loss
        loss.backward()
        take_step(model, optimizer, OptimizerConfig().clip, loss.detach())
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    for _ in range(WARMUP_STEPS):
        step()
    return step


def build_mixtral(size: BenchSize, experts: int) -> MixtralForCausalLM:
    """transformers' Mixtral, its layers compiled where ours are."""
    design = DESIGNS["mixtral"]
    config = MixtralConfig(
        **llama_fields(size),
        num_local_experts=experts,
        num_experts_per_tok=design.top_k,
        output_router_logits=True,
        router_aux_loss_coef=design.load_balance,
    )
    config._experts_implementation = "grouped_mm"
    with torch.device(pick_device()):
        model = MixtralForCausalLM(config).to(weight_dtype()).train()
    if size.compile:
        compile_layers(model.model.layers)
    return model


def llama(size: BenchSize) -> LlamaForCausalLM:
    """transformers' Llama of the active size."""
    with torch.device(pick_device()):
        return LlamaForCausalLM(LlamaConfig(**llama_fields(size))).to(weight_dtype())


def llama_fields(size: BenchSize) -> dict[str, Any]:
    """The sizes, by the names of transformers' configurations."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    shape = asdict(size.shape)
    return {
        **{name: shape[name] for name in names},
        "vocab_size": size.vocab_size,
        "num_key_value_heads": size.shape.num_attention_heads,
        "max_position_embeddings": size.longest,
    }


def weight_dtype() -> torch.dtype:
    """The dtype of weights where there is no autocast."""
    return torch.bfloat16 if has_bf16(pick_device()) else torch.float32
