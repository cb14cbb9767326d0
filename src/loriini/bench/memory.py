"""Peak memory of a training step by part."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from loriini.bench.fitting import that_fits
from loriini.bench.models import bench_run, run_config, start
from loriini.bench.sizes import BenchSize
from loriini.bench.timing import Attempts, Row, free, result, synchronize
from loriini.common.hardware import autocast, autocast_dtype, pick_device
from loriini.estimate.activations import merged_parameters, saved_bytes
from loriini.model import LoriiniForCausalLM
from loriini.train.config import TrainConfig
from loriini.train.step import training_step

MERGES = {"lory": False, "lory recompute_merge": True}
"""Lory's names in rows, by whether the backward pass merges experts again."""


def memory_rows(size: BenchSize, attempts: Attempts) -> Iterator[Row]:
    """The memory of Lory's steps relative to the dense model's, beyond weights, gradients and optimizer.

    A warning names the steps that the accelerator's memory does not hold.
    """
    for micro_batch_size in size.micro_batch_sizes:
        single = replace(size, micro_batch_sizes=(micro_batch_size,), batch_size=micro_batch_size)
        dense = bytes_if_it_fits("dense", bench_run(single, "dense", 1), attempts)
        if dense is None:
            continue
        for name, recompute in MERGES.items():
            for experts in single.experts:
                run = bench_run(single, "lory", experts, recompute_merge=recompute)
                used = bytes_if_it_fits(name, run, attempts)
                if used is None:
                    continue
                ratio = used["activations"] / dense["activations"]
                yield {
                    **result("memory", name, experts, "dense", ratio, micro_batch_size * single.length),
                    "segments": micro_batch_size * -(-single.length // single.segment_length),
                    "segment_length": single.segment_length,
                    "bytes": used,
                    "baseline_bytes": dense,
                    "total_ratio": round(used["total"] / dense["total"], 4),
                }


def bytes_if_it_fits(name: str, run: TrainConfig, attempts: Attempts) -> dict[str, int] | None:
    """`step_bytes`; None, with a warning, where the memory is too small or measuring failed."""
    what = f"memory of {name}, {run.model.num_experts} experts, micro-batches of {run.micro_batch_size}"
    return attempts.attempt(what, lambda: step_bytes(run) if that_fits(run) else None)


def step_bytes(run: TrainConfig) -> dict[str, int]:
    """Bytes of a micro-batch after a step's first, by part, when the weights already have gradients.

    `merged`, the experts' merged weights that are kept, is part of `activations`. On CUDA these are the
    allocator's peak beyond the other parts, gradients of activations included. On a CPU, whose allocator
    keeps no such count, they are what the forward pass saves for the backward pass, autocast's copies of
    weights included.
    """
    size = run.instances_at_once()
    run = replace(run, batch_size=2 * size, micro_batch_size=size)
    state, read = start(run)
    config = run_config(run)
    merged = merged_parameters(config, size, run.length)
    dtype = autocast_dtype(run.precision) or torch.float32
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
        activations = _saved(state.model, ids_BL, run)
    del state
    free()
    kept = 0 if config.recompute_merge else merged * dtype.itemsize * config.num_hidden_layers
    total = sum(parts.values()) + activations
    return {**parts, "activations": activations, "merged": kept, "total": total}


def _saved(model: LoriiniForCausalLM, ids_BL: Tensor, run: TrainConfig) -> int:
    """Bytes that a forward pass saves."""

    def forward() -> object:
        with autocast(run.precision):
            return model(ids_BL[:, :-1], shift_labels=ids_BL[:, 1:], use_cache=False)

    return saved_bytes(model, forward)
