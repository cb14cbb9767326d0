"""The memory of a step by part, whichever way a device counts it."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from tinybench import TINY

from live_bytes import LiveBytes
from loriini.bench import memory, models
from loriini.bench.memory import step_bytes
from loriini.model.low_precision import experts_cast_once
from loriini.train import step
from loriini.train.config import ModelShape, TrainConfig
from loriini.train.step import Reader, TrainingState

SIZE = replace(TINY, shape=ModelShape(64, 704, 2, 4), length=128, segment_length=32)


def peak_bytes(run: TrainConfig) -> dict[str, int]:
    """`step_bytes` as on a GPU, whose allocator's peak is that of live tensors here."""
    live = LiveBytes()
    states: list[TrainingState] = []

    def start(run: TrainConfig) -> tuple[TrainingState, Reader]:
        state, read = models.start(run)
        states.append(state)
        return state, read

    def reset() -> None:
        (state,) = states
        moments = [moment for each in state.optimizer.state.values() for moment in each.values()]
        live.count([*state.model.parameters(), *moments])
        live.__enter__()

    def peak() -> int:
        live.__exit__(None, None, None)
        return live.peak

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "start", start)
        patch.setattr(memory, "pick_device", lambda: torch.device("cuda"))
        patch.setattr(torch.cuda, "reset_peak_memory_stats", reset)
        patch.setattr(torch.cuda, "max_memory_allocated", peak)
        return step_bytes(run)


@pytest.mark.parametrize(
    ("design", "experts", "into_main_grads"),
    [("dense", 1, False), ("lory", 8, False), ("lory", 8, True)],
    ids=["dense", "lory", "lory with the kernel"],
)
def test_a_gpus_peak_is_what_a_cpu_counts_and_the_transient(
    design: str, experts: int, into_main_grads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the peak of a step's only micro-batch there would be no gradients that could be subtracted."""
    once = partial(experts_cast_once, into_main_grads=into_main_grads)
    monkeypatch.setattr(step, "experts_cast_once", once)
    run = replace(models.bench_run(SIZE, design, experts), batch_size=2, precision="bf16")
    on_gpu, on_cpu = peak_bytes(run), step_bytes(run)
    assert on_gpu["total"] - on_gpu["activations"] == on_cpu["total"] - on_cpu["activations"]
    assert 1 <= on_gpu["activations"] / on_cpu["activations"] < 1.2
