"""Many processes train what one does: the same losses, gradients and weights, in any mesh."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from loriini import DESIGNS, LoriiniConfig, LoriiniForCausalLM
from loriini.errors import InputError
from loriini.model.loss import has_fused_loss
from loriini.model.mixture import Mixture
from loriini.train.estimate import others_states
from loriini.train.expertwise import slice_experts
from loriini.train.footprint import saved_bytes
from loriini.train.hardware import autocast
from loriini.train.loop import Interrupted, train
from loriini.train.measures import Measure
from loriini.train.parallel import Parallel, ParallelConfig, check_mesh, once, processes, spread
from loriini.train.run import Run
from loriini.train.sharding import build, clip_gradients, whole, whole_view
from loriini.train.speed import SpeedConfig
from loriini.train.traffic import Exchange, Work, expert_wise_bytes, fsdp
from loriini.train.upcycle import WarmupConfig
from runs import Pattern, after_step, metrics, signal_self, tiny_corpus, tiny_run
from tiny import assert_same_gradients, label_arguments, tiny_config
from together import job

STEPS = 20
FSDP, HYBRID, EXPERTS = ParallelConfig(), ParallelConfig(shard=2), ParallelConfig(experts=2)
COMPARED = ("lory", "mixtral", "aoe")
BATCH, LENGTH = 4, 12


def spread_run(design: str, parallel: ParallelConfig = FSDP, micro_batch_size: int = 0) -> Run:
    """A seed for which no top-k decision is so near that rounding turns it."""
    share = 0.2 if DESIGNS[design].preserves_dense else 0.0
    run = tiny_run(design, steps=STEPS, seed=1, warmup=WarmupConfig(share), parallel=parallel)
    return replace(run, micro_batch_size=micro_batch_size)


def train_all(runs: list[Run], folder: Path) -> list[list[dict[str, Any]]]:
    """Several runs one after the other, in as many processes as there are; their metrics."""
    with processes():
        corpus = once(lambda: tiny_corpus(folder / "tokenizer"))
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

    with processes():
        corpus = once(lambda: tiny_corpus(folder / "tokenizer"))
        for i, run in enumerate(runs):
            train(run, corpus, folder / str(i), [Measure("losses.jsonl", 4, loss, best_by="loss")])


def stop_at(step: int, run: Run, folder: Path) -> None:
    """Train until one process, and not the first, is told to stop."""
    with processes(), pytest.MonkeyPatch.context() as patch:
        corpus = once(lambda: tiny_corpus(folder / "tokenizer"))
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


def batch(config: LoriiniConfig) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(3, config.vocab_size, (BATCH, LENGTH), generator=generator)


def backward(
    model: LoriiniForCausalLM,
    ids: Tensor,
    labels: dict[str, Tensor],
    parallel: Parallel,
    precision: str = "fp32",
) -> None:
    with autocast(precision):
        loss = model(ids, labels=ids, average=parallel.mean, **labels).loss
    (loss / parallel.world_size).backward()


def spread_gradients(configs: list[LoriiniConfig], mesh: ParallelConfig) -> list[tuple[Any, float]]:
    """For each configuration the whole gradients of one batch, shared out, and their norm."""
    results = []
    with processes():
        parallel = spread(mesh)
        for config in configs:
            torch.manual_seed(0)
            model = build(config, parallel, "fp32")
            ids = batch(config).chunk(parallel.world_size)[parallel.rank]
            labels = label_arguments(model, BATCH)
            labels = {k: v.chunk(parallel.world_size)[parallel.rank] for k, v in labels.items()}
            backward(model, ids, labels, parallel)
            norm = clip_gradients(model, 1e9, parallel).item()
            view = whole_view(model, parallel)
            gradients = {
                name: whole(view(name, p.grad)).numpy()
                for name, p in model.named_parameters()
                if p.grad is not None
            }
            results.append((gradients, norm))
    return results


def whole_gradients(config: LoriiniConfig) -> tuple[dict[str, Tensor], float]:
    """The same in one process; an expert chooses among the units of one process at a time."""
    torch.manual_seed(0)
    model = LoriiniForCausalLM(config).train()
    parts = 2 if config.routing.selection == "expert_choice" else 1
    labels = label_arguments(model, BATCH)
    for i, ids in enumerate(batch(config).chunk(parts)):
        of_part = {k: v.chunk(parts)[i] for k, v in labels.items()}
        (model(ids, labels=ids, **of_part).loss / parts).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9).item()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}, norm


def configurations() -> Iterator[LoriiniConfig]:
    """Every design, and blocks and sizes that have parameters of their own."""
    for design in DESIGNS:
        yield tiny_config(design)
    for design in ("lory", "mixtral"):
        yield tiny_config(design, block="gpt2")
        yield tiny_config(design, low_rank=8)
    yield tiny_config("lory", tie_word_embeddings=True)
    yield tiny_config("lory", num_experts=1)


@pytest.mark.parametrize("mesh", [FSDP, EXPERTS], ids=["fsdp", "experts"])
def test_gradients_of_every_design_are_those_of_one_process(mesh: ParallelConfig) -> None:
    configs = list(configurations())[:: 1 if mesh is EXPERTS else 4]
    results = job(2, spread_gradients, configs, mesh)[0]
    for config, (gradients, norm) in zip(configs, results, strict=True):
        expected, expected_norm = whole_gradients(config)
        assert norm == pytest.approx(expected_norm, rel=1e-5)
        actual = {name: torch.from_numpy(gradient) for name, gradient in gradients.items()}
        assert_same_gradients(actual, expected, rtol=1e-3, atol=1e-6)


class Bytes(TorchDispatchMode):
    """Counts what a process sends in some groups, by kind of exchange."""

    def __init__(self, *groups: dist.ProcessGroup) -> None:
        super().__init__()
        self.groups, self.sent = groups, {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            boxed = next(
                a for a in args if isinstance(a, torch.ScriptObject) and "ProcessGroup" in str(a._type())
            )
            group = dist.ProcessGroup.unbox(boxed)
            if group in self.groups:
                kind, tensors = func._opname, [t for t in args[:2] if isinstance(t, Tensor)]
                smaller = min(t.numel() * t.element_size() for t in tensors)
                self.sent[kind] = self.sent.get(kind, 0) + (group.size() - 1) * smaller
        return func(*args, **(kwargs or {}))


def sent(configs: list[LoriiniConfig], experts: int, precision: str) -> list[dict[str, int]]:
    """What this process sends within its expert group in one pass, forward and backward."""
    counts = []
    with processes():
        parallel = spread(ParallelConfig(experts=experts))
        for config in configs:
            model = build(config, parallel, precision)
            ids = batch(config)[:1].expand(2, -1)
            with Bytes(parallel.group("experts")) as mode:
                backward(model, ids, label_arguments(model, 2), parallel, precision)
            counts.append(mode.sent)
    return counts


# Meshes in which no one else uses the experts' groups.
@pytest.mark.parametrize(
    ("world_size", "experts", "precision"), [(4, 2, "fp32"), (4, 2, "bf16"), (8, 4, "fp32")]
)
def test_expert_wise_parallelism_sends_activations_only(
    world_size: int, experts: int, precision: str
) -> None:
    designs = ("lory", "smear", "mixtral", "aoe", "label", "ec-token")
    configs = [tiny_config(design) for design in designs[:: experts // 2]]
    configs.append(tiny_config("lory", intermediate_size=48))
    counts = job(world_size, sent, configs, experts, precision)
    state_bytes = 2 if precision == "bf16" else 4
    for config, *of_ranks in zip(configs, *counts, strict=True):
        expected = expert_wise_bytes(config, experts, 2, LENGTH, state_bytes)
        for count in of_ranks:
            assert Exchange(count.pop("_allgather_base_"), count.pop("_reduce_scatter_base_")) == expected
            assert not count


def sent_by_fsdp(configs: list[LoriiniConfig]) -> list[dict[str, int]]:
    """What this process sends to gather shards and to reduce gradients in one pass, forward and backward."""
    counts = []
    with processes():
        parallel = spread(FSDP)
        for config in configs:
            model = build(config, parallel, "fp32")
            with Bytes(parallel.group("shard"), parallel.group("data")) as mode:
                backward(model, batch(config)[:1], {}, parallel)
            counts.append(mode.sent)
    return counts


def test_fsdp_sends_what_the_estimate_says_to_1_percent() -> None:
    configs = [tiny_config("lory", block=block) for block in ("llama", "gpt2")]
    work = Work(instances=1, length=LENGTH, micro_batches=1, itemsize=4)
    for counts in job(2, sent_by_fsdp, configs):
        for config, count in zip(configs, counts, strict=True):
            expected = fsdp(config, work, 2, 2)
            assert count["_allgather_base_"] == pytest.approx(expected.parameters, rel=0.01)
            assert count["_reduce_scatter_base_"] == pytest.approx(expected.gradients, rel=0.01)


def saved_more(configs: list[LoriiniConfig]) -> list[int]:
    """How many more bytes a forward pass saves where all processes share the experts."""
    more = []
    with processes():
        for config in configs:
            model = LoriiniForCausalLM(config).train()
            ids, labels = batch(config), label_arguments(model, BATCH)
            apart = saved_bytes(model, lambda: model(ids, shift_labels=ids, **labels))  # noqa: B023
            for mixture in model.model.mixtures:
                slice_experts(mixture.experts, dist.group.WORLD)
                for weight in mixture.experts.parameters():
                    nn.init.normal_(weight, std=0.02)
            shared = saved_bytes(model, lambda: model(ids, shift_labels=ids, **labels))  # noqa: B023
            more.append(shared - apart)
    return more


def test_a_group_keeps_the_states_that_the_estimate_says() -> None:
    configs = [tiny_config(design, hidden_size=64) for design in ("lory", "smear", "mixtral", "label")]
    for config, more in zip(configs, job(2, saved_more, configs)[0], strict=True):
        states = others_states(config, 2, BATCH, LENGTH)
        assert more == pytest.approx(4 * config.num_hidden_layers * states, rel=0.15)  # besides, gates


@pytest.mark.parametrize(
    ("mesh", "world_size", "changes", "message"),
    [
        (ParallelConfig(shard=3), 4, {}, r"parallel.shard is 3, but 4 processes are no multiple of it"),
        (ParallelConfig(shard=-1), 4, {}, r"parallel.shard is -1; it must be at least 0"),
        (ParallelConfig(shard=8), 4, {}, r"parallel.shard is 8, but 4 processes"),
        (ParallelConfig(experts=3), 4, {}, r"parallel.experts is 3, but the 4 processes that share a model"),
        (ParallelConfig(experts=0), 4, {}, r"parallel.experts is 0; it must be at least 1"),
        (ParallelConfig(shard=1, experts=2), 4, {}, r"parallel.experts is 2, but the 1 processes"),
        (ParallelConfig(), 3, {}, r"batch_size is 4, no multiple of the 3 processes"),
        (ParallelConfig(experts=4), 4, {"intermediate_size": 18}, r"each expert's width is 18, no multiple"),
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
    with processes(), pytest.raises(InputError) as error:
        once(fail)
    return str(error.value)


def test_wrong_input_found_by_the_first_process_is_everyones() -> None:
    assert job(2, refused) == ["a corpus: is not there"] * 2


def test_one_process_needs_no_mesh() -> None:
    assert spread(ParallelConfig(shard=8, experts=4)) == Parallel()
    check_mesh(ParallelConfig(shard=8, experts=4), 1, 3, tiny_config())
    assert all(isinstance(m, Mixture) for m in build(tiny_config(), Parallel(), "fp32").model.mixtures)
