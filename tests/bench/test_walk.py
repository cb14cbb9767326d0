"""Bytes and FLOPs of a step, beside what a pencil says."""

from dataclasses import replace

import pytest
import torch

from bench.tinybench import TINY
from loriini.bench.models import bench_run, run_config
from loriini.bench.operations import Machine, Operation, fused
from loriini.bench.walk import seconds_by_group, walk_step

SIZE = replace(TINY, vocab_size=96, shape=replace(TINY.shape, num_hidden_layers=3))
INSTANCES, MICRO_BATCHES, E = 2, 3, 4
P = 3 * SIZE.shape.hidden_size * SIZE.shape.intermediate_size
N = INSTANCES * SIZE.length // SIZE.segment_length
LAYERS = SIZE.shape.num_hidden_layers


def totals(
    design: str,
    experts: int,
    one_pass: bool = False,
    casts_once: bool = True,
    vocab_size: int = SIZE.vocab_size,
    **model: bool,
) -> dict[str, tuple[float, float]]:
    """Bytes and FLOPs of a step by group."""
    config = run_config(bench_run(replace(SIZE, vocab_size=vocab_size), design, experts, **model))
    step = walk_step(
        config,
        INSTANCES,
        SIZE.length,
        MICRO_BATCHES,
        torch.bfloat16,
        one_pass=one_pass,
        casts_once=casts_once,
    )
    moved = seconds_by_group(step, Machine(1, float("inf")))
    arithmetic = dict.fromkeys(moved, 0.0)
    for operation, times in step:
        arithmetic[operation.group] += times * operation.flops
    return {group: (moved[group], arithmetic[group]) for group in moved}


@pytest.fixture(scope="module")
def lory() -> dict[str, tuple[float, float]]:
    return totals("lory", E)


def test_a_merge_reads_experts_and_writes_a_unit_each(lory: dict[str, tuple[float, float]]) -> None:
    gates = 3 * 2 * N * E  # of three matrices, in bfloat16
    times = LAYERS * MICRO_BATCHES
    assert lory["merge"] == (times * (2 * (E * P + N * P) + gates), times * 2 * N * E * P)


def test_its_backward_pass_reads_the_merged_gradient_for_gates_and_for_experts(
    lory: dict[str, tuple[float, float]],
) -> None:
    moved, arithmetic = lory["merge backward"]
    times = LAYERS * MICRO_BATCHES
    assert moved == pytest.approx(times * 2 * (2 * N * P + 2 * E * P), rel=0.02)
    assert arithmetic == times * 4 * N * E * P


def test_the_kernel_reads_the_merged_gradient_once_and_adds_to_float32(
    lory: dict[str, tuple[float, float]],
) -> None:
    kernel = totals("lory", E, one_pass=True)
    times = LAYERS * MICRO_BATCHES
    assert kernel["merge backward"][0] == pytest.approx(times * (2 * N * P + (2 + 8) * E * P), rel=0.02)
    assert kernel["merge backward"][1] == lory["merge backward"][1]
    own_pass, zeros = (2 + 8) * E * P, LAYERS * 4 * E * P
    sums = times * own_pass - zeros  # it adds to zeros that are written once
    assert lory["gradient sums"][0] - kernel["gradient sums"][0] == pytest.approx(sums, rel=0.02)


def test_experts_are_cast_once_a_step_or_in_every_micro_batch(lory: dict[str, tuple[float, float]]) -> None:
    each = totals("lory", E, casts_once=False)
    forward, backward = 4 + 2, 2 + 4  # bytes of an element read and written
    more = LAYERS * E * P * ((MICRO_BATCHES - 1) * forward + MICRO_BATCHES * backward)
    assert each["casts"][0] - lory["casts"][0] == pytest.approx(more, rel=0.02)


def test_ffn_products_are_those_of_the_dense_model(lory: dict[str, tuple[float, float]]) -> None:
    tokens = INSTANCES * SIZE.length * MICRO_BATCHES
    assert lory["FFN"][1] == totals("dense", 1)["FFN"][1] == 6 * tokens * P * LAYERS


def test_a_recomputed_merge_is_done_twice(lory: dict[str, tuple[float, float]]) -> None:
    again = totals("lory", E, recompute_merge=True)
    assert again["merge"][1] == lory["merge"][1]
    assert again["merge backward"][1] == lory["merge backward"][1] + lory["merge"][1]
    assert again["FFN"][1] == lory["FFN"][1]


def test_the_optimizer_reads_and_writes_every_parameter() -> None:
    config = run_config(bench_run(SIZE, "lory", E))
    moved = totals("lory", E)["optimizer"][0]
    norm, adamw = 1, 8  # the kernel writes the gradients as it scaled them
    assert moved == pytest.approx(4 * (norm + adamw) * config.parameters()[0], rel=0.01)


@pytest.mark.parametrize("pairs", [1, 2])
def test_no_vocabulary_is_taken_for_tokens_or_pairs(pairs: int) -> None:
    other = totals("mixtral", E)
    same = totals("mixtral", E, vocab_size=pairs * INSTANCES * SIZE.length)
    assert (same["attention"], same["FFN"]) == (other["attention"], other["FFN"])


def test_a_compiler_moves_only_what_enters_and_leaves_a_run() -> None:
    def op(name: str, group: str, reads: list[int], writes: list[int]) -> Operation:
        return Operation(name, group, "forward", 0.0, dict.fromkeys(reads, 10), dict.fromkeys(writes, 10))

    operations = [
        op("mul", "elementwise", [1, 2], [3]),
        op("add", "elementwise", [3, 1], [4]),
        op("mm", "FFN", [4], [5]),
        op("mul", "elementwise", [5, 3], [6]),
        op("mm", "FFN", [6], [7]),
    ]
    kernels = fused(operations)
    assert [kernel.name for kernel in kernels] == ["fused", "mm", "mul", "mm"]
    assert (kernels[0].reads, kernels[0].writes) == ({1: 10, 2: 10}, {3: 10, 4: 10})
    assert fused([*operations[:2], operations[2]])[0].writes == {4: 10}
