"""Many processes train what one does: the same losses and weights, in any mesh."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from loriini import DESIGNS, LoriiniForCausalLM
from loriini.errors import InputError
from loriini.model.loss import has_fused_loss
from loriini.model.mixture import Mixture
from loriini.parallel.mesh import (
    Parallel,
    ParallelConfig,
    check_mesh,
    join_mesh,
    on_first_rank,
    process_group,
)
from loriini.parallel.sharding import build_model
from loriini.train.loop import Interrupted, train
from loriini.train.measures import Measure
from loriini.train.run import Run
from loriini.train.speed import SpeedConfig
from loriini.train.upcycle import WarmupConfig
from runs import Pattern, after_step, metrics, signal_self, tiny_corpus, tiny_run
from tiny import tiny_config
from together import job

STEPS = 20
FSDP, HYBRID, EXPERTS = ParallelConfig(), ParallelConfig(shard=2), ParallelConfig(experts=2)
COMPARED = ("lory", "mixtral", "aoe")


def spread_run(design: str, parallel: ParallelConfig = FSDP, micro_batch_size: int = 0) -> Run:
    """A seed for which no top-k decision is so near that rounding turns it."""
    share = 0.2 if DESIGNS[design].preserves_dense else 0.0
    run = tiny_run(design, steps=STEPS, seed=1, warmup=WarmupConfig(share), parallel=parallel)
    return replace(run, micro_batch_size=micro_batch_size)


def train_all(runs: list[Run], folder: Path) -> list[list[dict[str, Any]]]:
    """Several runs one after the other, in as many processes as there are; their metrics."""
    with process_group():
        corpus = on_first_rank(lambda: tiny_corpus(folder / "tokenizer"))
        outs = [folder / str(i) for i in range(len(runs))]
        return [metrics(train(run, corpus, out).parent) for run, out in zip(runs, outs, strict=True)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of every design's run in one process."""
    folder, designs = tmp_path_factory.mktemp("alone"), [*COMPARED, "deepseek-v3"]
    train_all([spread_run(design) for design in designs], folder)
    return {design: folder / str(i) for i, design in enumerate(designs)}


def assert_same_run(out: Path, expected: Path) -> None:
    """Every step once, with nearly the same loss and norm, and nearly the same weights in the end."""
    assert [m["step"] for m in metrics(out)] == list(range(1, STEPS + 1))
    for ours, theirs in zip(metrics(out), metrics(expected), strict=True):
        for name in ("loss", "auxiliary_loss"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-5, abs=1e-9)
        assert ours["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=1e-4)
        assert ours["tokens"] == theirs["tokens"]
        assert ours.get("active") == theirs.get("active")
    weights, whole_weights = (load_file(run / "model" / "model.safetensors") for run in (out, expected))
    assert weights.keys() == whole_weights.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, whole_weights[name], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("world_size", "meshes"), [(2, (FSDP, EXPERTS)), (4, (HYBRID, EXPERTS))], ids=["two", "four"]
)
def test_any_number_of_processes_trains_the_same(
    world_size: int, meshes: tuple[ParallelConfig, ...], alone: dict[str, Path], tmp_path: Path
) -> None:
    cases: list[tuple[str, ParallelConfig, int]]
    cases = [(design, mesh, 0) for design in COMPARED for mesh in meshes]
    if world_size == 2:
        cases += [("deepseek-v3", FSDP, 0), ("lory", FSDP, 1)]
    job(world_size, train_all, [spread_run(*case) for case in cases], tmp_path)
    for i, (design, *_) in enumerate(cases):
        assert_same_run(tmp_path / str(i), alone[design])


def test_switches_and_measures_work_in_several_processes(tmp_path: Path) -> None:
    switches = SpeedConfig(activation_checkpointing=True, fused_loss="on" if has_fused_loss() else "auto")
    plain = tiny_run("lory", seed=1)
    run = replace(plain, speed=switches, parallel=EXPERTS)
    train_all([plain], tmp_path / "alone")
    job(2, train_measured, [run, replace(run, parallel=FSDP)], tmp_path / "two")
    for i in (0, 1):
        expected, out = metrics(tmp_path / "alone" / "0"), tmp_path / "two" / str(i)
        losses = [m["loss"] for m in metrics(out)]
        assert losses == pytest.approx([m["loss"] for m in expected], rel=1e-5)
        measured = [json.loads(line) for line in (out / "losses.jsonl").read_text().splitlines()]
        assert [entry["step"] for entry in measured] == [4, 8, 10]
        assert measured[-1]["loss"] < measured[0]["loss"]
        assert (out / "checkpoints" / "step-00000010" / "state.json").exists()


def train_measured(runs: list[Run], folder: Path) -> None:
    """Several runs, each measured by a forward pass of its model."""
    ids = torch.from_numpy(Pattern().read(np.arange(4)))

    def loss(model: LoriiniForCausalLM) -> dict[str, Any]:
        with torch.no_grad():
            return {"loss": model.eval()(ids[:, :-1], shift_labels=ids[:, 1:]).loss.item()}

    with process_group():
        corpus = on_first_rank(lambda: tiny_corpus(folder / "tokenizer"))
        for i, run in enumerate(runs):
            train(run, corpus, folder / str(i), [Measure("losses.jsonl", 4, loss, score="loss")])


def stop_at(step: int, run: Run, folder: Path) -> None:
    """Train until one process, and not the first, is told to stop."""
    with process_group(), pytest.MonkeyPatch.context() as patch:
        corpus = on_first_rank(lambda: tiny_corpus(folder / "tokenizer"))
        if dist.get_rank() == dist.get_world_size() - 1:
            after_step(patch, step, signal_self)
        with pytest.raises(Interrupted):
            train(run, corpus, folder / "0")


def test_a_run_goes_on_in_another_mesh(alone: dict[str, Path], tmp_path: Path) -> None:
    job(4, stop_at, 3, spread_run("lory", EXPERTS), tmp_path)  # in the dense phase
    files = sorted(path.name for path in (tmp_path / "0/checkpoints/step-00000003").iterdir())
    assert files == [f"shard-0000{i}-model-00001-of-00001.safetensors" for i in (1, 2, 3, 4)] + ["state.json"]
    job(2, stop_at, 8, spread_run("lory", HYBRID), tmp_path)
    job(4, stop_at, 13, spread_run("lory", ParallelConfig(shard=2, experts=2)), tmp_path)
    train_all([spread_run("lory")], tmp_path)
    assert_same_run(tmp_path / "0", alone["lory"])


@pytest.mark.parametrize(
    ("mesh", "world_size", "changes", "message"),
    [
        (ParallelConfig(shard=3), 4, {}, r"parallel.shard is 3, but 4 processes are not a multiple of it"),
        (ParallelConfig(shard=8), 4, {}, r"parallel.shard is 8, but 4 processes"),
        (ParallelConfig(experts=3), 4, {}, r"parallel.experts is 3, but the 4 processes that share a copy"),
        (ParallelConfig(shard=1, experts=2), 4, {}, r"parallel.experts is 2, but the 1 processes"),
        (ParallelConfig(), 3, {}, r"batch_size is 4, not a multiple of the 3 processes"),
        (
            ParallelConfig(experts=4),
            4,
            {"intermediate_size": 18},
            r"each expert's width is 18, not a multiple",
        ),
        (
            ParallelConfig(experts=2),
            2,
            {"routing": replace(DESIGNS["aoe"], node="hidden")},
            r"routing.node=hidden needs the whole width",
        ),
    ],
)
def test_a_mesh_that_cannot_be_is_refused(
    mesh: ParallelConfig, world_size: int, changes: dict[str, Any], message: str
) -> None:
    config = tiny_config(**{"routing": "lory", **changes})
    with pytest.raises(InputError, match=message):
        check_mesh(mesh, world_size, 4, config)


def fail() -> None:
    raise InputError("a corpus: is not there")


def refused() -> str:
    with process_group(), pytest.raises(InputError) as error:
        on_first_rank(fail)
    return str(error.value)


def test_wrong_input_found_by_the_first_process_is_everyones() -> None:
    assert job(2, refused) == ["a corpus: is not there"] * 2


def test_one_process_needs_no_mesh() -> None:
    assert join_mesh(ParallelConfig(shard=8, experts=4)) == Parallel()
    check_mesh(ParallelConfig(shard=8, experts=4), 1, 3, tiny_config())
    assert all(isinstance(m, Mixture) for m in build_model(tiny_config(), Parallel(), "fp32").model.mixtures)
