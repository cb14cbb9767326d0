"""The benchmark measures what it says, one model at a time; no speed is tested."""

import json
import math
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from tinybench import TINY
from torch._dynamo.exc import FailOnRecompileLimitHit

from loriini.bench import measure as bench
from loriini.bench import models
from loriini.bench.measure import Comparison, timed_rows
from loriini.bench.models import bench_run, build_generation, build_steps, llama, on_device, run_config
from loriini.bench.timing import Case, in_rounds, measured
from loriini.cli import main
from loriini.train import step

KEYS = set(bench.COLUMNS)
MIXTRAL, LLAMA = "transformers MixtralForCausalLM", "transformers LlamaForCausalLM"


def test_the_command_writes_a_row_for_every_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "bench_size", lambda quick: TINY)
    out = tmp_path / "results" / "bench.json"
    main(["bench", "--quick", "--out", str(out)])
    written = json.loads(out.read_text())
    heading, *lines = capsys.readouterr().out.splitlines()
    assert set(heading.split()) == KEYS
    assert len(lines) == len(written)
    for row in written:
        assert row.keys() >= KEYS | {"machine"}
        assert math.isfinite(row["ratio"])
        assert row["ratio"] > 0
        assert (row["median_s"] is None) == (row["what"] == "memory")
    assert [(row["what"], row["design"], row["experts"], row["baseline"]) for row in written] == [
        ("train_step", "lory", 2, "dense"),
        ("train_step", "lory", 4, "dense"),
        ("train_step", "mixtral", 4, MIXTRAL),
        ("train_step", "dense with Muon", 1, "dense with AdamW"),
        ("train_step", "lory with Muon", 2, "lory with AdamW"),
        *(("decode", "lory", n, f"{LLAMA}, batch {batch}") for batch in (1, 3) for n in (2, 4)),
        ("memory", "lory", 2, "dense"),
        ("memory", "lory", 4, "dense"),
        ("memory", "lory recompute_merge", 2, "dense"),
        ("memory", "lory recompute_merge", 4, "dense"),
    ]
    assert written[0]["tokens_per_step"] == TINY.batch_size * TINY.length
    used = written[-1]["bytes"]
    assert used["optimizer"] == 2 * used["weights"] == 2 * used["gradients"]
    assert written[-3]["bytes"]["merged"] > written[-1]["bytes"]["merged"] == 0


def test_one_model_is_in_memory_at_a_time_and_cases_take_turns() -> None:
    alive = weakref.WeakSet[object]()
    order: list[str] = []

    class Model:
        def __init__(self) -> None:
            assert not alive
            alive.add(self)

    def build(name: str) -> Callable[[], Callable[[], object]]:
        def work_of_a_new_model() -> Callable[[], object]:
            model = Model()
            return lambda: order.append(f"{name}{model is None}")

        return work_of_a_new_model

    rounds = list(in_rounds([Case(name, 1, build(name)) for name in "abc"], rounds=2))
    assert [name[0] for name in order] == list("abccba")
    assert [len(seconds) for seconds in rounds] == [3, 3]


@torch._dynamo.config.patch(recompile_limit=1)
def test_no_time_is_measured_where_torch_stops_compiling() -> None:
    double = torch.compile(lambda x: 2 * x, backend="eager", dynamic=False)
    works = [partial(double, torch.ones(n)) for n in (2, 3)]
    with pytest.raises(FailOnRecompileLimitHit):
        measured(Case("doubled", 1, lambda: lambda: [work() for work in works]))


def test_the_ratio_is_the_median_over_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [[2.0, 1.0], [8.0, 2.0], [8.0, 8.0]]
    monkeypatch.setattr(bench, "in_rounds", lambda cases, rounds: iter(times))
    (row,) = timed_rows(Comparison("decode", IDLE, [IDLE], 1), 3)
    assert (row["ratio"], row["median_s"], row["runs"]) == (2.0, 2.0, 3)


def test_a_measured_step_is_the_training_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []

    def training_step(state: object, run: object, loader: object) -> dict[str, object]:
        metrics = step.training_step(state, run, loader)  # type: ignore[arg-type]
        batches.append(run.batch_size)  # type: ignore[attr-defined]
        return metrics

    monkeypatch.setattr(models, "training_step", training_step)
    build_steps(bench_run(TINY, "lory", 2))()
    assert batches == [TINY.micro_batch_size] * models.WARMUP_STEPS + [TINY.batch_size]


def test_compared_models_are_of_equal_size() -> None:
    dense, lory = (run_config(bench_run(TINY, name, n)) for name, n in (("dense", 1), ("lory", 4)))
    width, hidden = TINY.shape.hidden_size, TINY.shape.intermediate_size
    assert lory.parameters()[0] - dense.parameters()[0] == 4 * width + 3 * 3 * width * hidden
    theirs = llama(dense, torch.float32)
    assert sum(p.numel() for p in theirs.parameters()) == dense.parameters()[0]


@pytest.mark.parametrize("make", [llama, on_device])
def test_prompts_are_continued(make: Callable[..., torch.nn.Module]) -> None:
    design = ("dense", 1) if make is llama else ("lory", 4)
    work = build_generation(TINY, 3, partial(make, run_config(bench_run(TINY, *design)), torch.float32))
    first = work()
    assert isinstance(first, torch.Tensor)
    assert first.shape == (3, 2 * TINY.new_tokens)
    assert torch.equal(work(), first)


IDLE = Case("idle", 1, lambda: lambda: None)


def failing(error: Exception) -> Case:
    def build() -> Callable[[], object]:
        raise error

    return Case("failing", 8, build)


def test_cases_that_memory_does_not_hold_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    large = failing(torch.OutOfMemoryError("CUDA out of memory"))
    rows = list(timed_rows(Comparison("decode", IDLE, [large, IDLE], 1), 2))
    assert [row["design"] for row in rows] == ["idle"]
    assert "failing, 8 experts: left out" in capsys.readouterr().err
    assert not list(timed_rows(Comparison("decode", large, [IDLE], 1), 2))


def test_another_error_ends_the_benchmark() -> None:
    with pytest.raises(TypeError):
        list(timed_rows(Comparison("decode", IDLE, [failing(TypeError("why"))], 1), 2))
