"""One batch in several processes: the gradients of one process, and the bytes that are estimated."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from loriini import DESIGNS, LoriiniConfig, LoriiniForCausalLM
from loriini.estimate.activations import saved_bytes
from loriini.estimate.communication import (
    GroupBytes,
    RankStep,
    expert_parallel_bytes,
    expert_wise,
    expert_wise_bytes,
    fsdp,
)
from loriini.estimate.memory import others_states
from loriini.hardware import autocast
from loriini.model.experts.stacked import Experts
from loriini.parallel import sharding
from loriini.parallel.counting import SentBytes
from loriini.parallel.mesh import Parallel, ParallelConfig, ShareExperts, join_mesh
from loriini.parallel.sharding import (
    build_model,
    clip_gradients,
    full_tensor,
    reduce_gradients,
    split_experts,
)
from loriini.routing.scorer import ScorerModule
from loriini.train.speed import SpeedConfig, speed_up
from tiny import SEGMENT, assert_same_gradients, gradients, label_arguments, tiny_config
from together import in_one_group, job

FSDP, EXPERTS = ParallelConfig(), ParallelConfig(experts=2)
WHOLE = ParallelConfig(experts=2, share_experts="whole")
WHOLE_OF_FOUR = (
    ParallelConfig(experts=4, share_experts="whole"),
    ParallelConfig(experts=2, share_experts="whole"),
    ParallelConfig(shard=2, experts=2, share_experts="whole"),
)
BATCH, LENGTH = 4, 12
STEP = RankStep(instances=1, length=LENGTH, micro_batches=1, itemsize=4)


def every_configuration() -> Iterator[LoriiniConfig]:
    """Every design, and blocks and sizes that have parameters of their own."""
    for design in DESIGNS:
        yield tiny_config(design)
    for design in ("lory", "mixtral"):
        yield tiny_config(design, block="gpt2")
        yield tiny_config(design, low_rank=8)
    yield tiny_config("lory", tie_word_embeddings=True)
    yield tiny_config("lory", num_experts=1)


CONFIGURATIONS = list(every_configuration())
SOFT = replace(DESIGNS["lory"], combination="outputs", segment_length=SEGMENT)
SELECTING = [config for config in CONFIGURATIONS if config.routing.combination == "outputs"]
SELECTING += [tiny_config(SOFT), tiny_config("label", num_experts=8)]
SENDING = [tiny_config(design) for design in ("lory", "smear", "mixtral", "aoe", "label", "ec-token")]
SENDING.append(tiny_config("lory", intermediate_size=48))
SPLIT = [tiny_config(design) for design in ("mixtral", "aoe")]  # AoE calls its experts twice
PRECISIONS = {"fp32": 4, "bf16": 2}
BLOCKS = [tiny_config("lory", block=block) for block in ("llama", "gpt2")]
SELECTED = [
    tiny_config(design, num_experts=6)
    for design in (SOFT, "mixtral", "sequence-top1", "aoe", "label", "ec-segment")
]
ROUTED = [tiny_config(design) for design in ("lory", "segment-then-token")]
ROUTED.append(tiny_config(replace(DESIGNS["lory"], scorer="mlp", segment_length=SEGMENT)))
KEEPING = [tiny_config(design, hidden_size=64) for design in ("lory", "smear", "mixtral", "label")]


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


def sharded_gradients(configs: list[LoriiniConfig], mesh: ParallelConfig) -> list[tuple[Any, float]]:
    """For each configuration the whole gradients of one batch, shared out, and their norm."""
    results = []
    parallel = join_mesh(mesh)
    for config in configs:
        torch.manual_seed(0)
        model = build_model(config, parallel, "fp32")
        ids = batch(config).chunk(parallel.world_size)[parallel.rank]
        labels = label_arguments(model, BATCH)
        labels = {k: v.chunk(parallel.world_size)[parallel.rank] for k, v in labels.items()}
        backward(model, ids, labels, parallel)
        norm = clip_gradients(model, 1e9).item()
        gradients = {
            name: full_tensor(p.grad).numpy() for name, p in model.named_parameters() if p.grad is not None
        }
        results.append((gradients, norm))
    return results


def single_gradients(config: LoriiniConfig, processes: int) -> tuple[dict[str, Tensor], float]:
    """The same in one process; an expert chooses among the units of one process at a time."""
    torch.manual_seed(0)
    model = LoriiniForCausalLM(config).train()
    parts = processes if config.routing.selection == "expert_choice" else 1
    labels = label_arguments(model, BATCH)
    for i, ids in enumerate(batch(config).chunk(parts)):
        of_part = {k: v.chunk(parts)[i] for k, v in labels.items()}
        (model(ids, labels=ids, **of_part).loss / parts).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9).item()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}, norm


def clipped_norm(config: LoriiniConfig, mesh: ParallelConfig) -> tuple[float, float]:
    """The norm of the gradients before clipping to 0.01, and after."""
    parallel = join_mesh(mesh)
    model = build_model(config, parallel, "fp32")
    backward(model, batch(config), {}, parallel)
    return clip_gradients(model, 0.01).item(), clip_gradients(model, 1e9).item()


def sent_in_group(
    configs: list[LoriiniConfig],
    experts: int,
    share_experts: ShareExperts,
    precision: str,
    recomputed: bool = False,
) -> list[dict[str, int]]:
    """What this process sends within its expert group in one pass, forward and backward."""
    counts = []
    parallel = join_mesh(ParallelConfig(experts=experts, share_experts=share_experts))
    for config in configs:
        model = build_model(config, parallel, precision)
        speed_up(model, SpeedConfig(activation_checkpointing=recomputed))
        ids = batch(config)[:1].expand(2, -1)
        with SentBytes(parallel.mesh.get_group("experts")) as mode:
            backward(model, ids, label_arguments(model, 2), parallel, precision)
        counts.append(mode.sent)
    return counts


def sent_by_fsdp(
    configs: list[LoriiniConfig], reduced: tuple[bool, ...] = (True,), mesh: ParallelConfig = FSDP
) -> list[dict[str, int]]:
    """What this process sends to gather shards and to reduce gradients.

    In one forward and backward pass for each of `reduced`, whether it reduces the gradients.
    """
    counts, parallel = [], join_mesh(mesh)
    for config in configs:
        model = build_model(config, parallel, "fp32")
        with SentBytes(*(one.get_group() for one in parallel.fsdp_meshes)) as mode:
            for reduce in reduced:
                reduce_gradients(model, reduce)
                backward(model, batch(config)[:1], {}, parallel)
        counts.append(mode.sent)
    return counts


def saved_more(configs: list[LoriiniConfig], mesh: ParallelConfig) -> list[int]:
    """How many more bytes a forward pass saves where all processes share the experts."""
    more = []
    parallel = join_mesh(mesh)
    for config in configs:
        model = LoriiniForCausalLM(config).train()
        ids, labels = batch(config), label_arguments(model, BATCH)
        apart = saved_bytes(model, lambda: model(ids, shift_labels=ids, **labels))  # noqa: B023
        for mixture in model.model.mixtures:
            mixture.experts = split_experts(mixture.experts, parallel)
        shared = saved_bytes(model, lambda: model(ids, shift_labels=ids, **labels))  # noqa: B023
        more.append(shared - apart)
    return more


def weights_in_bf16(configs: list[LoriiniConfig]) -> list[dict[str, Any]]:
    """What routers and experts compute on where layers compute in bfloat16, and the gradients of a batch."""
    results = []
    parallel = join_mesh(FSDP)
    for config in configs:
        torch.manual_seed(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sharding, "layer_dtype", lambda precision: torch.bfloat16)
            model = build_model(config, parallel, "bf16")
        seen: dict[str, Any] = {}
        for name, module in model.named_modules():
            if isinstance(module, ScorerModule | Experts):
                module.register_forward_pre_hook(partial(keep_weights, seen, name))
        ids = batch(config).chunk(parallel.world_size)[parallel.rank]
        backward(model, ids, {}, parallel, "bf16")
        gradients = {name: full_tensor(p.grad).numpy() for name, p in model.named_parameters()}
        results.append({"seen": seen, "gradients": gradients})
    return results


def keep_weights(seen: dict[str, Any], name: str, module: torch.nn.Module, _: Any) -> None:
    for weight, value in module.named_parameters():
        seen[f"{name}.{weight}"] = str(value.dtype), value.detach().clone().float().numpy()


TWO_PROCESSES = {
    "bf16": (weights_in_bf16, ROUTED),
    "fsdp": (sharded_gradients, CONFIGURATIONS[::4], FSDP),
    "experts": (sharded_gradients, CONFIGURATIONS, EXPERTS),
    "whole": (sharded_gradients, SELECTING[::2], WHOLE),
    "clipped": (clipped_norm, tiny_config("aoe"), EXPERTS),
    "sent": (sent_by_fsdp, BLOCKS),
    "saved": (saved_more, KEEPING, EXPERTS),
    "saved of whole": (saved_more, [tiny_config("ec-token", hidden_size=64)], WHOLE),
    "accumulated": (sent_by_fsdp, BLOCKS, (False, False, True)),
}


@pytest.fixture(scope="module")
def two_processes() -> dict[str, Any]:
    """What the first of two processes returns from each task."""
    return dict(zip(TWO_PROCESSES, job(2, in_one_group, list(TWO_PROCESSES.values()))[0], strict=True))


def assert_those_of_a_single_process(
    config: LoriiniConfig, processes: int, gradients: dict[str, Any], norm: float
) -> None:
    expected, expected_norm = single_gradients(config, processes)
    assert norm == pytest.approx(expected_norm, rel=1e-5)
    actual = {name: torch.from_numpy(gradient) for name, gradient in gradients.items()}
    assert_same_gradients(actual, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("mesh", ["fsdp", "experts", "whole"])
def test_gradients_are_those_of_a_single_process(mesh: str, two_processes: dict[str, Any]) -> None:
    for config, found in zip(TWO_PROCESSES[mesh][1], two_processes[mesh], strict=True):
        assert_those_of_a_single_process(config, 2, *found)


def test_so_are_those_of_whole_experts_in_any_mesh_of_four() -> None:
    """Of the other designs: in one group of all, sharded besides, and in replicas; then FSDP's bytes."""
    shares = [SELECTING[1::2][i :: len(WHOLE_OF_FOUR)] for i in range(len(WHOLE_OF_FOUR))]
    tasks = [(sharded_gradients, *task) for task in zip(shares, WHOLE_OF_FOUR, strict=True)]
    *returned, sent = job(4, in_one_group, [*tasks, (sent_by_fsdp, SPLIT, (True,), EXPERTS)])[0]
    for config, count in zip(SPLIT, sent, strict=True):
        expected = expert_wise(config, STEP, ranks=4, shard=4, group=2).parameters
        assert count["_allgather_base_"] == pytest.approx(expected, rel=0.01)
    for configs, results in zip(shares, returned, strict=True):
        for config, found in zip(configs, results, strict=True):
            assert_those_of_a_single_process(config, 4, *found)


def test_routers_compute_on_float32_weights_where_layers_are_in_bf16(two_processes: dict[str, Any]) -> None:
    """As in one process, where routing is float32 and autocast casts what it casts as it is used."""
    for config, found in zip(ROUTED, two_processes["bf16"], strict=True):
        torch.manual_seed(0)
        model = LoriiniForCausalLM(config).train()
        weights, routers = model.state_dict(), 0
        for name, (dtype, value) in found["seen"].items():
            router = ".router." in name
            assert dtype == ("torch.float32" if router else "torch.bfloat16")
            assert torch.equal(torch.from_numpy(value), weights[name]) == router
            routers += router
        assert routers == sum(".router." in name for name in weights)
        backward(model, batch(config), {}, Parallel(), "bf16")
        for name, gradient in gradients(model).items():
            if ".router." in name:
                actual = torch.from_numpy(found["gradients"][name])
                assert (actual - gradient).norm() < 0.05 * gradient.norm()


def test_gradients_are_clipped_to_their_norm(two_processes: dict[str, Any]) -> None:
    before, after = two_processes["clipped"]
    assert before > 0.01
    assert after == pytest.approx(0.01, rel=1e-3)


def test_fsdp_sends_what_the_estimate_says_to_1_percent(two_processes: dict[str, Any]) -> None:
    for config, count in zip(BLOCKS, two_processes["sent"], strict=True):
        expected = fsdp(config, STEP, 2, 2)
        assert count["_allgather_base_"] == pytest.approx(expected.parameters, rel=0.01)
        assert count["_reduce_scatter_base_"] == pytest.approx(expected.gradients, rel=0.01)


def test_gradients_reduced_once_are_sent_once(two_processes: dict[str, Any]) -> None:
    step = replace(STEP, micro_batches=3, reduce_once=True)
    for config, count in zip(BLOCKS, two_processes["accumulated"], strict=True):
        expected = fsdp(config, step, 2, 2)
        assert count["_allgather_base_"] == pytest.approx(expected.parameters, rel=0.01)
        assert count["_reduce_scatter_base_"] == pytest.approx(expected.gradients, rel=0.01)


def test_a_group_keeps_the_states_that_the_estimate_says(two_processes: dict[str, Any]) -> None:
    for config, more in zip(KEEPING, two_processes["saved"], strict=True):
        states = config.num_hidden_layers * others_states(config, 2, BATCH, LENGTH)
        assert more == pytest.approx(4 * states, rel=0.15)  # besides, gates


def test_whole_experts_keep_no_states_of_others(two_processes: dict[str, Any]) -> None:
    (more,) = two_processes["saved of whole"]
    assert abs(more) < 0.01 * 4 * 2 * BATCH * LENGTH * 64  # of one copy in both layers


@pytest.fixture(scope="module")
def sent_in_groups() -> list[list[list[dict[str, int]]]]:
    """What each of six processes, in groups of three, sends in each task; no other collective uses them."""
    tasks = [(sent_in_group, SENDING, 3, "width", precision) for precision in PRECISIONS]
    whole = (sent_in_group, SELECTED, 3, "whole", "bf16")
    recomputed = [(*tasks[0], True), (*whole, True)]
    return job(6, in_one_group, [*tasks, whole, *recomputed])


@pytest.mark.parametrize(("task", "state_bytes", "recomputed"), [(0, 4, False), (1, 2, False), (3, 4, True)])
def test_expert_wise_parallelism_sends_activations_only(
    sent_in_groups: list[Any], task: int, state_bytes: int, recomputed: bool
) -> None:
    """But for AoE's W_down, whose gradients DTensor sums: `SentBytes` does not see it."""
    for returned in sent_in_groups:
        for config, count in zip(SENDING, returned[task], strict=True):
            step = RankStep(2, LENGTH, 1, state_bytes, recomputed=recomputed)
            expected = expert_wise_bytes(config, 3, step)
            assert GroupBytes(count["_allgather_base_"], count["_reduce_scatter_base_"]) == expected
            assert len(count) == 2


@pytest.mark.parametrize(("task", "recomputed"), [(2, False), (4, True)])
def test_expert_parallelism_sends_pairs_there_and_back(
    sent_in_groups: list[Any], task: int, recomputed: bool
) -> None:
    """All processes have the same data, so that the mean load is even; with labels, that of each never is."""
    for i, config in enumerate(SELECTED):
        counts = [returned[task][i] for returned in sent_in_groups]
        assert all(count.keys() == {"alltoall_base_"} for count in counts)
        sent = [count["alltoall_base_"] for count in counts]
        step = RankStep(2, LENGTH, 1, PRECISIONS["bf16"], recomputed=recomputed)
        expected = expert_parallel_bytes(config, 3, step)
        assert sum(sent) / len(sent) == pytest.approx(expected, rel=1e-9)
        if config.routing.selection in ("expert_choice", "all"):
            assert len(set(sent)) == 1
        elif config.routing.selection == "label":
            assert len(set(sent)) > 1
