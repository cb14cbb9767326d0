"""The benchmark measures what it says, one model at a time; no speed is tested."""

import json
import math
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from tinybench import TINY
from torch._dynamo.exc import FailOnRecompileLimitHit

from loriini.bench import measure, models, parts, sizes, timing
from loriini.bench.models import build_steps, start
from loriini.bench.operations import Machine
from loriini.bench.parts import Comparison
from loriini.bench.rows import by_round
from loriini.bench.timing import Attempts, Case, in_rounds, measured, speed
from loriini.cli import main
from loriini.train import step

KEYS = {"what", "design", "experts", "dtype", "ratio", "baseline", "median_s", "runs", "tokens_per_step"}
MIXTRAL, LLAMA = "transformers MixtralForCausalLM", "transformers LlamaForCausalLM"


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "BENCH_SIZES", dict.fromkeys(sizes.BENCH_SIZES, TINY))
    least = {"dense": 1.0, "lory": 1.5, "mixtral": 1.0, "aoe": 1.25}  # the walk takes seconds
    monkeypatch.setattr(models, "step_seconds", lambda run, machine: least[run.name])


def test_the_command_writes_a_row_for_every_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results" / "bench.json"
    main(["bench", "--quick", "--rounds", "1", "--out", str(out)])
    written = json.loads(out.read_text())
    heading, *lines = capsys.readouterr().out.splitlines()
    assert set(heading.split()) >= KEYS
    assert len(lines) == len(written)
    for row in written:
        assert row.keys() >= KEYS | {"part", "machine"}
        assert math.isfinite(row["ratio"])
        assert row["ratio"] > 0
        assert (row["median_s"] is None) == (row["what"] == "memory")
        assert row["machine"]["matrix_flops"] > 0
    measured = [(row["what"], row["design"], row["experts"], row["baseline"]) for row in written]
    assert measured == [
        ("train_step", "lory", 2, "dense"),
        ("train_step", "lory", 4, "dense"),
        ("train_step", "mixtral", 4, MIXTRAL),
        ("train_step", "aoe r=8", 2, "mixtral"),
        ("ffn", "lory", 2, "dense"),
        ("ffn", "lory", 4, "dense"),
        *(
            ("decode", "lory", experts, f"{LLAMA}, {what}")
            for what in ("batch 1", "batch 3", "prefill 16")
            for experts in (2, 4)
        ),
        ("memory", "lory", 2, "dense"),
        ("memory", "lory", 4, "dense"),
        ("memory", "lory recompute_merge", 2, "dense"),
        ("memory", "lory recompute_merge", 4, "dense"),
    ]
    for row in written[:2]:
        (dense,) = row["baseline_seconds"]
        assert row["bound"] == pytest.approx(dense / (dense + 0.5), abs=1e-4)
        assert 0 < row["mfu"] < 1
        assert row["segments"] == 8
        assert row["tokens_per_step"] == TINY.batch_size * TINY.length
    (top2,) = written[3]["baseline_seconds"]
    assert written[3]["bound"] == pytest.approx(top2 / (top2 + 0.25), abs=1e-4)
    assert all("bound" in row for row in written[6:12])
    used = written[-1]["bytes"]
    assert used["optimizer"] == 2 * used["weights"] == 2 * used["gradients"]
    assert written[-3]["bytes"]["merged"] > written[-1]["bytes"]["merged"] == 0


def test_one_part_replaces_its_rows_and_keeps_the_others(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    out.write_text(json.dumps([{"part": "decode", "ratio": 1}, {"part": "ffn", "ratio": 2}]))
    main(["bench", "--quick", "--only", "ffn", "--rounds", "1", "--out", str(out)])
    written = json.loads(out.read_text())
    assert [row["part"] for row in written] == ["decode", "ffn", "ffn"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--out {folder}", "is a folder"),
        ("--rounds 0", "--rounds 0"),
        ("--only ffn --out {other}", "not a b"),
        ("--out {notes}", "is no output of this command"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_measured(
    given: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"ratio": 1}')
    notes = tmp_path / "notes.md"
    notes.write_text("mine")
    with pytest.raises(SystemExit) as end:
        main(["bench", *given.format(folder=tmp_path, other=other, notes=notes).split()])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_rows_are_there_after_every_round() -> None:
    rounds = list(measure(only=["ffn"], size=TINY))
    assert [rows[0]["runs"] for rows in rounds] == [1, 2]


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
    assert [name[0] for name in order] == list("cba" + "abccba")
    assert [len(seconds) for seconds in rounds] == [3, 3]


@torch._dynamo.config.patch(recompile_limit=2)
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore:The .grad attribute",
    "ignore:Dynamo detected a call to a `functools.lru_cache`",
)  # torch's own, and of transformers' mixtures
def test_every_compiled_case_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    size = replace(TINY, compile=True)
    for compared in (*parts.merged_steps(size), *parts.sparse_steps(size)):
        list(in_rounds([compared.baseline, *compared.cases], rounds=1))


@torch._dynamo.config.patch(recompile_limit=1)
def test_no_time_is_measured_where_torch_stops_compiling() -> None:
    double = torch.compile(lambda x: 2 * x, backend="eager", dynamic=False)
    works = [partial(double, torch.ones(n)) for n in (2, 3)]
    with pytest.raises(FailOnRecompileLimitHit):
        measured(Case("doubled", 1, lambda: lambda: [work() for work in works]))


def test_speed_is_the_median_ratio_over_rounds() -> None:
    assert speed([1.0, 2.0, 8.0], [2.0, 8.0, 8.0]) == 2.0


def test_a_measured_step_is_the_training_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []

    def training_step(state: object, run: object, loader: object) -> dict[str, object]:
        metrics = step.training_step(state, run, loader)  # type: ignore[arg-type]
        batches.append((run.batch_size, metrics["gradient_norm"] > 0))  # type: ignore[attr-defined]
        return metrics

    monkeypatch.setattr(models, "training_step", training_step)
    build_steps(models.bench_run(TINY, "lory", 2), steps=2)()
    warmup = [(TINY.micro_batch_sizes[0], True)] * models.WARMUP_STEPS
    assert batches == [*warmup, (TINY.batch_size, True), (TINY.batch_size, True)]


def test_compared_models_are_of_equal_size() -> None:
    (merged,) = parts.merged_steps(TINY)
    dense, lory = merged.baseline.details, merged.cases[1].details
    experts, width, hidden = TINY.experts[1], TINY.shape.hidden_size, TINY.shape.intermediate_size
    assert lory["parameters"] - dense["parameters"] == experts * width + (experts - 1) * 3 * width * hidden
    (aoe,) = parts.aoe_steps(TINY)
    assert aoe.cases[0].details["parameters"] == pytest.approx(aoe.baseline.details["parameters"], rel=0.05)
    state, _ = start(models.bench_run(TINY, "mixtral", 4))
    theirs = models.MixtralForCausalLM(models.MixtralConfig(**models.llama_fields(TINY), num_local_experts=4))
    assert sum(p.numel() for p in state.model.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_steps_that_merge_again_are_measured_beside_the_dense_model() -> None:
    (compared,) = parts.recomputed_steps(TINY)
    assert [case.details["recompute_merge"] for case in compared.cases] == [True, True]
    assert [case.experts for case in compared.cases] == [TINY.experts[0], TINY.experts[-1]]
    assert compared.baseline.details == parts.dense_case(TINY).details


def test_tokens_after_a_cached_prompt_are_those_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "weight_dtype", lambda: torch.float32)
    torch.manual_seed(0)
    model = parts.build_lory(TINY, 4).eval()
    ids = parts.random_ids(TINY, 3, TINY.prompt)
    found = parts.build_generation(TINY, 3, lambda: model)()
    lengths = torch.full((3,), TINY.prompt)
    for _ in range(1 + TINY.new_tokens):
        with torch.no_grad():
            logits = model(ids, prompt_lengths=lengths, use_cache=False).logits[:, -1:]
        logits[..., 0] = -math.inf  # the end of a text, which `min_new_tokens` suppresses
        ids = torch.cat([ids, logits.argmax(-1)], 1)
    assert torch.equal(found, ids)


@pytest.mark.parametrize("make", [partial(parts.llama, TINY), partial(parts.build_lory, TINY, 4)])
def test_generation_may_be_measured_again(make: Callable[[], torch.nn.Module]) -> None:
    work = parts.build_generation(TINY, 3, make)
    first = work()
    assert torch.equal(work(), first)
    assert torch.equal(work(), first)


@pytest.mark.parametrize(
    ("batch", "experts", "ffns_read"), [(1, 8, 1), (4, 8, 4), (16, 8, 8)], ids=["one", "merged", "summed"]
)
def test_decoding_reads_the_fewer_of_merged_ffns_and_experts(
    batch: int, experts: int, ffns_read: int
) -> None:
    machine = Machine(bandwidth=1.0, flops=float("inf"))
    shape, itemsize = TINY.shape, models.weight_dtype().itemsize
    ffn = 3 * shape.hidden_size * shape.intermediate_size * itemsize
    wanted = shape.num_hidden_layers * TINY.new_tokens * ffns_read * ffn
    assert parts.decoding_seconds(TINY, batch, experts, machine) == wanted


@pytest.mark.parametrize(("experts", "ffns_moved"), [(1, 1), (8, 8 + 2), (32, 32 + 2)])
def test_a_prompt_reads_all_experts_and_moves_their_merge_twice(experts: int, ffns_moved: int) -> None:
    machine = Machine(bandwidth=1.0, flops=float("inf"))
    ffn = 3 * TINY.shape.hidden_size * TINY.shape.intermediate_size * models.weight_dtype().itemsize
    wanted = TINY.prompts * TINY.shape.num_hidden_layers * ffns_moved * ffn
    assert parts.prefill_seconds(TINY, experts, machine) == wanted


def test_published_ratios_are_those_of_table_3() -> None:
    from loriini.bench.rows import published_ratio

    assert [published_ratio(n) for n in (8, 16, 32, 64)] == [0.845, 0.79, 0.717, None]


def failing(error: Exception, times: int = 0) -> Case:
    """A case that can be built `times` times, then fails."""
    left = [None] * times

    def build() -> Callable[[], object]:
        if not left:
            raise error
        left.pop()
        return lambda: None

    return Case("failing", 8, build)


SMALL = Case("small", 1, lambda: lambda: None)
MACHINE = Machine(1e12, 1e10)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "pick_device", lambda: torch.device("cuda"))
    for name, value in {"synchronize": None, "empty_cache": None, "memory_allocated": 0}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)


def rows_of(baseline: Case, *cases: Case, attempts: Attempts | None = None) -> list[list[tuple[str, int]]]:
    """The design and runs of each row, after every round."""
    size = replace(TINY, rounds=2, repeats=3)
    found = by_round(Comparison("ffn", baseline, cases, 1), size, MACHINE, attempts or Attempts())
    return [[(row["design"], row["runs"]) for row in rows] for rows in found]


def test_cases_that_memory_does_not_hold_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    large = failing(torch.OutOfMemoryError("CUDA out of memory"))
    assert rows_of(SMALL, large, SMALL) == [[("small", 3)], [("small", 6)]]
    assert "failing, 8 experts: left out" in capsys.readouterr().err
    assert not rows_of(large, SMALL)


def test_an_error_on_a_gpu_is_kept_and_the_others_go_on(
    on_gpu: None, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts = Attempts()
    assert rows_of(SMALL, failing(TypeError("why\nlines")), SMALL, attempts=attempts)[-1] == [("small", 6)]
    assert attempts.errors == ["failing, 8 experts: TypeError: why"]
    assert "failing, 8 experts: left out, since it failed: TypeError: why" in capsys.readouterr().err


def test_an_error_on_a_cpu_ends_the_benchmark() -> None:
    with pytest.raises(TypeError):
        rows_of(SMALL, failing(TypeError("why")))


def test_a_case_that_fails_later_keeps_its_rounds(on_gpu: None) -> None:
    case = failing(TypeError("why"), times=2)
    assert rows_of(SMALL, case, attempts=Attempts()) == [[("failing", 3)], [("failing", 3)]]


def test_errors_on_a_gpu_end_the_command_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: object, attempts: Attempts) -> list[object]:
        attempts.errors.append("why")
        return []

    monkeypatch.setattr("loriini.bench.measure", measure)
    with pytest.raises(SystemExit) as end:
        main(["bench", "--quick"])
    assert end.value.code == 1


def test_nothing_begins_once_the_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    attempts = Attempts(deadline=0.0)
    assert not rows_of(SMALL, SMALL, attempts=attempts)
    assert attempts.attempt("a part", lambda: 1) is None
    first, second = capsys.readouterr().err.splitlines()
    assert "ffn of small, 1 experts, small, 1 experts: left out, since the time is over" in first
    assert "a part: left out, since the time is over" in second


def test_memory_that_is_not_freed_is_named(
    on_gpu: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reset: list[None] = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: reset.append(None))
    timing.free()
    assert not capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 3 << 30)
    timing.free()
    assert "3.0 GiB" in capsys.readouterr().err
    assert len(reset) == 2
