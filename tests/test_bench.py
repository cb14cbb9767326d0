"""The benchmark measures and writes what it should; no speed is tested."""

import json
import math
from pathlib import Path

import pytest

from loriini import bench
from loriini.cli import main
from loriini.train.run import ModelShape

KEYS = ["what", "design", "experts", "dtype", "ratio", "baseline", "median_s", "runs", "tokens_per_step"]
TINY = bench.BenchSize(
    ModelShape(32, 48, 1, 2),
    vocab_size=64,
    length=16,
    batch_size=2,
    micro_batches=2,
    ranks=(8, 16),
    runs=2,
    experts=(2, 4),
    segment_length=8,
    prompt=4,
    new_tokens=3,
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "BENCH_SIZES", dict.fromkeys(bench.BENCH_SIZES, TINY))


@pytest.mark.usefixtures("tiny")
def test_the_command_prints_a_table_and_writes_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results" / "bench.json"
    main(["bench", "--quick", "--out", str(out)])
    rows = json.loads(out.read_text())
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == KEYS
    assert len(lines) == len(rows)
    for row in rows:
        assert set(row) == set(KEYS)
        assert math.isfinite(row["ratio"])
        assert row["ratio"] > 0
        assert (row["median_s"] is None) == (row["what"] == "memory")
    measured = [(row["what"], row["design"], row["experts"], row["baseline"]) for row in rows]
    assert measured == [
        ("train_step", "lory", 2, "dense"),
        ("train_step", "lory", 4, "dense"),
        ("train_step", "lory recompute_merge", 2, "dense"),
        ("train_step", "lory recompute_merge", 4, "dense"),
        ("train_step", "mixtral", 2, "transformers MixtralForCausalLM"),
        ("train_step", "aoe r=8", 2, "mixtral"),
        ("train_step", "aoe r=16", 2, "mixtral"),
        ("ffn", "lory", 2, "dense"),
        ("ffn", "lory", 4, "dense"),
        ("memory", "lory", 2, "dense"),
        ("memory", "lory", 4, "dense"),
        ("memory", "lory recompute_merge", 2, "dense"),
        ("memory", "lory recompute_merge", 4, "dense"),
        ("decode", "lory", 2, "transformers LlamaForCausalLM, batch 1"),
        ("decode", "lory", 2, "transformers LlamaForCausalLM, batch 2"),
    ]


def test_a_folder_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", "--out", str(tmp_path)])
    assert end.value.code == 2
    assert "is a folder" in capsys.readouterr().err


def test_cases_run_in_turn_and_the_first_round_is_not_counted() -> None:
    calls: list[str] = []
    rounds = list(bench.in_turn([lambda: calls.append("a"), lambda: calls.append("b")], runs=2))
    assert calls == ["a", "b"] * 3
    assert [len(seconds) for seconds in rounds] == [2, 2]


def test_speed_is_the_median_ratio_over_rounds() -> None:
    assert bench.speed([1.0, 2.0, 8.0], [2.0, 8.0, 8.0]) == 2.0


def test_compared_models_are_of_equal_size() -> None:
    dense, lory = (bench.build(TINY, name, n) for name, n in (("dense", 1), ("lory", 4)))
    top2, aoe = bench.build(TINY, "mixtral", 4), bench.build(TINY, "aoe", 4, low_rank=8)
    router = TINY.shape.num_hidden_layers * 4 * TINY.shape.hidden_size
    assert lory.config.parameters()[1] - dense.config.parameters()[1] == router
    assert aoe.config.parameters()[0] == pytest.approx(top2.config.parameters()[0], rel=0.05)
