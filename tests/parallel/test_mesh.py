"""Several processes train what one does: the same losses and weights, in any mesh."""

import json
import os
import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from loriini import DESIGNS, LoriiniForCausalLM
from loriini.common.errors import InputError
from loriini.common.signals import Interrupted
from loriini.evaluate.heldout import HeldOut
from loriini.evaluate.perplexity import evaluate
from loriini.model.mixture import Mixture
from loriini.model.weights.loading import load_model
from loriini.parallel import mesh
from loriini.parallel.mesh import Parallel, ParallelConfig, check_mesh, join_mesh, on_first_rank
from loriini.parallel.sharding import build_model
from loriini.train.checkpoints.storage import CheckpointConfig
from loriini.train.config import TrainConfig
from loriini.train.loop import train
from loriini.train.measures import Measure
from loriini.train.speed import SpeedConfig
from loriini.train.upcycle import WarmupConfig
from runs import Pattern, metrics, signal_self, stop, tiny_corpus, tiny_run
from tiny import SEGMENT, tiny_config
from together import in_one_group, job

STEPS = 6
FSDP, HYBRID, EXPERTS = ParallelConfig(), ParallelConfig(shard=2), ParallelConfig(experts=2)
HYBRID_EXPERTS = ParallelConfig(shard=2, experts=2)
WHOLE, HYBRID_WHOLE = (replace(mesh, share_experts="whole") for mesh in (EXPERTS, HYBRID_EXPERTS))


def run_in(name: str, mesh: ParallelConfig = FSDP, micro_batch_size: int = 0) -> TrainConfig:
    """A seed for which no top-k decision is so close that rounding changes it; copied at step 2.

    "mixtral of 4" is a design and its number of experts.
    """
    design, _, experts = name.partition(" of ")
    share = 0.25 if DESIGNS[design].preserves_dense else 0.0
    run = tiny_run(design, steps=STEPS, seed=1, warmup=WarmupConfig(share), parallel=mesh)
    model = replace(run.model, num_experts=int(experts or run.model.num_experts))
    return replace(run, model=model, micro_batch_size=micro_batch_size, checkpoint=CheckpointConfig(every=0))


def of_design(name: str) -> str:
    """A run's name without what follows the comma."""
    return name.partition(",")[0]


SPEED = SpeedConfig(activation_checkpointing=True)
RUNS = {
    2: {
        "lory": run_in("lory", EXPERTS, 1),
        "deepseek-v3": run_in("deepseek-v3"),
        "lory, faster": replace(run_in("lory", ParallelConfig(reduce_once=True), 1), speed=SPEED),
        "aoe of 4, faster": replace(run_in("aoe of 4", WHOLE), speed=SPEED),
    },
    4: {
        "lory": run_in("lory", HYBRID),
        "mixtral": run_in("mixtral", HYBRID_EXPERTS),
        "aoe": run_in("aoe", EXPERTS),
        "mixtral of 4": run_in("mixtral of 4", HYBRID_WHOLE),
    },
}


def shallow(name: str, mesh: ParallelConfig = FSDP) -> TrainConfig:
    """A run with one layer that is a mixture from the first step, as compiling takes most of its time."""
    run = run_in(name, mesh)
    return replace(run, model=replace(run.model, num_hidden_layers=1), warmup=WarmupConfig(0.0))


COMPILED = {
    "lory, shallow": shallow("lory", EXPERTS),
    "mixtral of 4, shallow": shallow("mixtral of 4", WHOLE),
}
"""Runs of two processes that are compiled."""
SINGLE = {of_design(name): run_in(of_design(name)) for runs in RUNS.values() for name in runs}
SINGLE |= {name: shallow(of_design(name)) for name in COMPILED}
RESUMED = {"lory": ((1, EXPERTS), (5, HYBRID_EXPERTS)), "mixtral of 4": ((3, WHOLE), (5, EXPERTS))}
"""Steps after which two and four processes are stopped, and their meshes."""


def train_in(run: TrainConfig, folder: Path) -> None:
    train(run, on_first_rank(lambda: tiny_corpus(folder / "tokenizer")), folder / "run")


def train_compiled(run: TrainConfig, folder: Path) -> None:
    """The graphs are those that are compiled, run without code generation, which takes half a minute."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        patch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
        train_in(replace(run, speed=SpeedConfig(compile=True)), folder)


def perplexity(model: LoriiniForCausalLM) -> float:
    """That of two long instances, which one of two processes has, and of two short ones."""
    rows = torch.from_numpy(Pattern().read(np.arange(4)))
    heldout = {"text": HeldOut([*rows[:2], *rows[2:, : SEGMENT + 1]], 1.0)}
    of_text: float = evaluate(model, heldout, 0, precision="fp32")["perplexity"]["text"]
    return of_text


def train_measured(run: TrainConfig, folder: Path) -> None:
    """A run whose checkpoints are scored by perplexity."""

    def measure(model: LoriiniForCausalLM) -> dict[str, Any]:
        return {"mean_perplexity": perplexity(model)}

    corpus = on_first_rank(lambda: tiny_corpus(folder / "tokenizer"))
    train(run, corpus, folder / "run", Measure(3, measure))


def stop_at(step: int, run: TrainConfig, folder: Path) -> None:
    """Train until the last process alone is interrupted."""
    corpus = on_first_rank(lambda: tiny_corpus(folder / "tokenizer"))
    last = dist.get_rank() == dist.get_world_size() - 1
    stop(run, corpus, folder / "run", step, signal_self if last else lambda: None)


def refusal() -> str:
    """The message of an InputError that rank 0 raises."""

    def fail() -> None:
        raise InputError("a corpus: is not there")

    with pytest.raises(InputError) as error:
        on_first_rank(fail)
    return str(error.value)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of every run in one process."""
    folder = tmp_path_factory.mktemp("single")
    for name, run in SINGLE.items():
        train_in(run, folder / name)
    return {path.name: path / "run" for path in folder.iterdir()}


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """A folder of runs in two and in four processes, and what the two return."""
    folder = tmp_path_factory.mktemp("several")
    two = [(train_in, run, folder / f"2 {name}") for name, run in RUNS[2].items() if name != "lory"]
    two += [(train_measured, RUNS[2]["lory"], folder / "2 lory")]
    two += [(train_compiled, run, folder / name) for name, run in COMPILED.items()]
    four = [(train_in, run, folder / f"4 {name}") for name, run in RUNS[4].items()]
    for name, stops in RESUMED.items():
        for tasks, (step, parallel) in zip((two, four), stops, strict=True):
            tasks.append((stop_at, step, run_in(name, parallel), folder / f"{name} resumed"))
    returned = job(2, in_one_group, [*two, (torch.initial_seed,), (refusal,)])
    job(4, in_one_group, four)
    return folder, returned


def assert_same_run(out: Path, expected: Path) -> None:
    """Every step once, with nearly the same loss and norm, and nearly the same weights in the end."""
    assert [m["step"] for m in metrics(out)] == list(range(1, STEPS + 1))
    for ours, theirs in zip(metrics(out), metrics(expected), strict=True):
        for name in ("loss", "auxiliary_loss"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-5, abs=1e-9)
        assert ours["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=1e-4)
        assert ours["tokens"] == theirs["tokens"]
        assert ours.get("active") == theirs.get("active")
        for name in ("gate_entropy", "confidence_entropy", "load_entropy"):
            assert ours.get(name) == pytest.approx(theirs.get(name), abs=1e-3)
    weights, whole_weights = (load_file(run / "model" / "model.safetensors") for run in (out, expected))
    assert weights.keys() == whole_weights.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, whole_weights[name], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("processes", "name"), [(n, name) for n, runs in RUNS.items() for name in runs])
def test_any_number_of_processes_trains_the_same(
    processes: int, name: str, single: dict[str, Path], several: tuple[Path, list[Any]]
) -> None:
    assert_same_run(several[0] / f"{processes} {name}" / "run", single[of_design(name)])


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_layers_train_the_same(
    name: str, single: dict[str, Path], several: tuple[Path, list[Any]]
) -> None:
    assert_same_run(several[0] / name / "run", single[name])


def test_a_run_is_measured_once_and_its_checkpoints_scored(several: tuple[Path, list[Any]]) -> None:
    """By processes that share experts as by one."""
    out = several[0] / "2 lory" / "run"
    measured = [json.loads(line) for line in (out / "evaluation.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in measured] == [3, STEPS]
    assert measured[-1]["mean_perplexity"] < measured[0]["mean_perplexity"]
    assert measured[-1]["mean_perplexity"] == pytest.approx(perplexity(load_model(out, "cpu")[0]), rel=1e-4)
    state = json.loads((out / "checkpoints" / f"step-{STEPS:08d}" / "state.json").read_text())
    assert state["score"] == measured[-1]["mean_perplexity"]


@pytest.mark.parametrize("name", RESUMED)
def test_a_run_is_resumed_in_another_mesh(
    name: str, single: dict[str, Path], several: tuple[Path, list[Any]]
) -> None:
    """By two processes, in the dense phase or after it, by four after it, by one to the end."""
    folder = several[0] / f"{name} resumed"
    checkpoints = folder / "run" / "checkpoints"
    for (step, _), processes in zip(RESUMED[name], (2, 4), strict=True):
        files = sorted(path.name for path in (checkpoints / f"step-{step:08d}").iterdir())
        shards = [f"shard-0000{i + 1}-model-00001-of-00001.safetensors" for i in range(processes)]
        assert files == [*shards, "state.json"]
    train_in(run_in(name), folder)
    assert_same_run(folder / "run", single[name])


def test_processes_drop_out_other_states(several: tuple[Path, list[Any]]) -> None:
    assert [returned[-2] for returned in several[1]] == [1, 2]


def test_wrong_input_found_by_rank_0_is_raised_by_all(several: tuple[Path, list[Any]]) -> None:
    assert [returned[-1] for returned in several[1]] == ["a corpus: is not there"] * 2


@pytest.mark.parametrize(
    ("mesh", "world_size", "changes", "named"),
    [
        (ParallelConfig(shard=3), 4, {}, "parallel.shard is 3"),
        (ParallelConfig(shard=8), 4, {}, "parallel.shard is 8"),
        (ParallelConfig(experts=3), 4, {}, "parallel.experts is 3"),
        (ParallelConfig(shard=1, experts=2), 4, {}, "parallel.experts is 2"),
        (ParallelConfig(), 3, {}, "batch_size is 4"),
        (ParallelConfig(experts=4), 4, {"intermediate_size": 18}, "width is 18"),
        (EXPERTS, 2, {"routing": replace(DESIGNS["aoe"], node="hidden")}, "routing.node"),
        (WHOLE, 2, {}, "selects none"),
        (WHOLE, 2, {"routing": "switch", "num_experts": 1}, "selects none"),
        (WHOLE, 2, {"routing": "switch", "num_experts": 3}, "num_experts is 3"),
    ],
)
def test_a_mesh_that_does_not_divide_is_refused(
    mesh: ParallelConfig, world_size: int, changes: dict[str, Any], named: str
) -> None:
    config = tiny_config(**{"routing": "lory", **changes})
    with pytest.raises(InputError, match=named):
        check_mesh(mesh, world_size, 4, config)


@pytest.mark.parametrize(("size", "others"), [("2", ["RANK"]), ("auto", mesh.TORCHRUN_VARIABLES)])
def test_a_world_size_that_torchrun_did_not_set_is_refused(
    size: str, others: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in mesh.TORCHRUN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in others:
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(InputError, match=f"WORLD_SIZE is {size}"), mesh.process_group():
        pass


@pytest.mark.parametrize("design", ["lory", "smear", "ec-segment"])
def test_documents_apart_are_refused_where_processes_share_experts_of_long_units(design: str) -> None:
    """Each process has as many units as documents or their segments, and a group gathers equal numbers."""
    run = tiny_run(design, document_mask=True, parallel=EXPERTS, warmup=WarmupConfig(dense_share=0))
    with pytest.raises(InputError, match="document_mask"):
        run.check(processes=2)
    run.check(processes=1)
    replace(run, document_mask=False).check(processes=2)
    replace(run, parallel=FSDP).check(processes=2)
    replace(run, routing=DESIGNS["mixtral"]).check(processes=2)


def test_a_dense_model_of_a_design_that_needs_whole_experts_is_shared() -> None:
    dense = tiny_config(replace(DESIGNS["aoe"], node="hidden"), num_experts=1)
    check_mesh(ParallelConfig(experts=2), 2, 4, dense)


def test_one_process_needs_no_mesh() -> None:
    assert join_mesh(ParallelConfig(shard=8, experts=4)) == Parallel()
    check_mesh(ParallelConfig(shard=8, experts=4), 1, 3, tiny_config())
    model = build_model(tiny_config(), Parallel(), "fp32")
    assert all(isinstance(mixture, Mixture) for mixture in model.model.mixtures)


def sums_of_groups(port: int) -> list[float]:
    """What four process groups in turn add up to, with a store that outlives them."""
    os.environ.update(MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True")
    sums = []
    for _ in range(4):
        with mesh.process_group():
            dist.all_reduce(one := torch.ones(()))
            sums.append(one.item())
    return sums


def test_trainings_in_turn_find_each_others_processes() -> None:
    """torchrun keeps one store, in which a second group would find the addresses of the first."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assert job(2, sums_of_groups, store.port) == [[2.0] * 4] * 2


@pytest.mark.parametrize(
    ("device", "error", "ended"),
    [("cuda", None, 1), ("cuda", RuntimeError(), 0), ("cuda", Interrupted(), 1), ("cpu", RuntimeError(), 1)],
)
def test_a_process_that_fails_alone_does_not_wait_for_the_others(
    device: str, error: BaseException | None, ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL's group ends in all processes together; the others wait for this one's next sum."""
    destroy = Mock()
    for name, value in {**dict.fromkeys(mesh.TORCHRUN_VARIABLES, "0"), "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(mesh, "pick_device", lambda: torch.device(device))
    monkeypatch.setattr(mesh, "rendezvous_store", dict)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(dist, "init_process_group", lambda backend, timeout: None)
    monkeypatch.setattr(dist, "destroy_process_group", destroy)
    with nullcontext() if error is None else pytest.raises(type(error)), mesh.process_group():
        if error is not None:
            raise error
    assert destroy.call_count == ended
