"""One batch in several processes: the gradients of one process, and the states that are saved."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from typing import Any, Literal

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from covering import cover
from live_bytes import LiveBytes
from loriini import DESIGNS, LoriiniConfig, LoriiniForCausalLM
from loriini.common.errors import InputError
from loriini.estimate.activations import saved_bytes
from loriini.estimate.memory import others_states
from loriini.estimate.muon import BFLOAT16, muon_bytes
from loriini.model.experts.stacked import Experts
from loriini.model.weights.conversion import converted
from loriini.parallel import sharding
from loriini.parallel.mesh import Parallel, ParallelConfig, check_mesh
from loriini.parallel.sharding import (
    build_model,
    full_tensor,
    gather_model,
    gradient_norm,
    local_part,
    split_experts,
    weights_and_buffers,
)
from loriini.routing.scorer import ScorerModule
from loriini.train import muon
from loriini.train.optimizer import OptimizerConfig, hidden_matrices, make_optimizer, take_step
from loriini.train.upcycle import copy_into_sharded_experts
from sharded import BATCH, LENGTH, backward, batch, joined
from tiny import SEGMENT, assert_same_gradients, gradients, label_arguments, tiny_config
from together import in_one_group, job

FSDP, EXPERTS = ParallelConfig(), ParallelConfig(experts=2)
WHOLE = ParallelConfig(experts=2, share_experts="whole")
WHOLE_OF_FOUR = (
    ParallelConfig(experts=4, share_experts="whole"),
    ParallelConfig(experts=2, share_experts="whole"),
    ParallelConfig(shard=2, experts=2, share_experts="whole"),
)


REPLICATED, HYBRID = ParallelConfig(shard=1), ParallelConfig(shard=2)
MESHES = {
    2: (FSDP, REPLICATED, EXPERTS, WHOLE),
    4: (FSDP, HYBRID, ParallelConfig(2, 2), EXPERTS, *WHOLE_OF_FOUR),
}
OptimizerName = Literal["adamw", "muon"]
Stepped = tuple[int, ParallelConfig, OptimizerName]
"""The place of a configuration in STEPPING, a mesh and an optimizer."""


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
OF_DESIGNS = ("scorer", "selection", "unit", "gates", "combination", "scope")
OF_MODELS = ("block", "low_rank", "tie_word_embeddings", "num_experts")


def aspects(place: int) -> list[tuple[str, Any]]:
    """What of one of CONFIGURATIONS may change how experts' gradients are computed."""
    config = CONFIGURATIONS[place]
    aspects = ((config.routing, OF_DESIGNS), (config, OF_MODELS))
    return [(name, getattr(part, name)) for part, names in aspects for name in names]


def shallow(config: LoriiniConfig) -> LoriiniConfig:
    return LoriiniConfig(**{**config.to_dict(), "num_hidden_layers": 1})


SHALLOW = [shallow(CONFIGURATIONS[place]) for place in cover(range(len(CONFIGURATIONS)), aspects)]
SOFT = replace(DESIGNS["lory"], combination="outputs", segment_length=SEGMENT)
SELECTING = [config for config in CONFIGURATIONS if config.routing.combination == "outputs"]
SELECTING += [tiny_config(SOFT), tiny_config("label", num_experts=8)]
ROUTED = [tiny_config(design) for design in ("lory", "segment-then-token")]
ROUTED.append(tiny_config(replace(DESIGNS["lory"], scorer="mlp", segment_length=SEGMENT)))
ONE = {"num_hidden_layers": 1}
UNEVEN = {**ONE, "hidden_size": 13, "head_dim": 2, "intermediate_size": 30}
STEPPING = [
    tiny_config("aoe", **ONE),
    tiny_config("mixtral", block="gpt2", **ONE),
    tiny_config("deepseek-v3", **ONE),
    tiny_config("mixtral", **{**UNEVEN, "intermediate_size": 27}, num_experts=6),
    tiny_config("lory", **UNEVEN, num_experts=3),
    tiny_config("dense", **UNEVEN, num_experts=1),
]
UNEVEN_FROM = 3
"""Configurations whose steps are compared, and from which place on processes share them unevenly."""
GATHERED = [tiny_config(design) for design in ("lory", "random", "switch", "aoe", "deepseek-v3")]
GATHERED += CONFIGURATIONS[len(DESIGNS) :]
KEEPING = [tiny_config(design, hidden_size=64) for design in ("lory", "smear", "mixtral", "label")]


def sharded_gradients(configs: list[LoriiniConfig], mesh: ParallelConfig) -> list[tuple[Any, float]]:
    """For each configuration the whole gradients of one batch, shared out, and their norm."""
    results = []
    parallel = joined(mesh)
    for config in configs:
        torch.manual_seed(0)
        model = build_model(config, parallel, "fp32")
        ids = batch(config).chunk(parallel.world_size)[parallel.rank]
        labels = label_arguments(model, BATCH)
        labels = {k: v.chunk(parallel.world_size)[parallel.rank] for k, v in labels.items()}
        backward(model, ids, labels, parallel)
        sharded = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        norm = gradient_norm(list(sharded.values())).item()
        results.append(({name: full_tensor(gradient).numpy() for name, gradient in sharded.items()}, norm))
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


def stepping(processes: int) -> list[Stepped]:
    """Every two of a configuration, a mesh that admits it and an optimizer.

    Of four processes, every two with an optimizer, and even and uneven sizes with every mesh.
    """
    cases = []
    for case in product(range(len(STEPPING)), MESHES[processes], ("adamw", "muon")):
        with suppress(InputError):
            check_mesh(case[1], processes, BATCH, STEPPING[case[0]])
            cases.append(case)
    if processes == 2:
        return cover(cases, lambda case: combinations(enumerate(case), 2))
    return cover(cases, lambda case: [case[::2], case[1:], (case[0] >= UNEVEN_FROM, case[1])])


def stepped(cases: list[Stepped]) -> list[tuple[dict[str, Any], list[bool], float, float]]:
    """Of each case what `two_steps` returns, how many numbers a process receives in a step of Muon, and how
    far matrices that it makes orthogonal in bfloat16 are from those of one process.
    """
    results = []
    for place, mesh, name in cases:
        torch.manual_seed(0)
        config, parallel = STEPPING[place], joined(mesh)
        model = build_model(config, parallel, "fp32")
        ids = batch(config).chunk(parallel.world_size)[parallel.rank]
        whole: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(muon, "orthogonal", partial(count_numbers, whole, muon.orthogonal))
            found = two_steps(model, name, lambda: backward(model, ids, {}, parallel))  # noqa: B023
        own = sum(local_part(p).numel() for p in hidden_matrices(model) if whole)
        received = parallel.mean(torch.tensor(sum(whole) / 2 - own))
        matrices = hidden_matrices(model)
        apart = max(orthogonal_apart(p) for p in model.parameters() if p in matrices)
        results.append((*found, received.item(), apart))
    return results


def orthogonal_apart(parameter: Tensor) -> float:
    """How far a sharded parameter made orthogonal in bfloat16 is from the whole one, at most."""
    part = muon.orthogonal_part(local_part(parameter.detach()).bfloat16(), parameter)
    if isinstance(parameter, DTensor):
        of = {"shape": parameter.shape, "stride": parameter.stride()}
        part = full_tensor(DTensor.from_local(part, parameter.device_mesh, parameter.placements, **of))
    whole = muon.orthogonal(full_tensor(parameter.detach()).bfloat16())
    return (part - whole).abs().max().item()


def count_numbers(counted: list[int], function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    counted.append(x.numel())
    return function(x)


def two_steps(
    model: LoriiniForCausalLM, name: OptimizerName, backward: Callable[[], None]
) -> tuple[dict[str, Any], list[bool]]:
    """The mean gradients and the weights' changes after a step that is clipped and one that is skipped, and
    whether they were taken.
    """
    optimizer = make_optimizer(model, OptimizerConfig(name=name, learning_rate=0.1))
    before = {n: full_tensor(p.detach()).clone() for n, p in model.named_parameters()}
    taken = []
    with pytest.MonkeyPatch.context() as patch:  # bfloat16 would show how gradients of shards are rounded
        patch.setattr(muon, "iteration_dtype", lambda x: x.dtype)
        for loss in (1.0, float("nan")):
            backward()
            taken.append(bool(take_step(model, optimizer, 0.01, torch.tensor(loss))[1]))
            optimizer.zero_grad()
    changes = {
        n: (full_tensor(optimizer.state[p]["exp_avg"]).numpy(), (full_tensor(p.detach()) - before[n]).numpy())
        for n, p in model.named_parameters()
    }
    return changes, taken


def saved_more(configs: list[LoriiniConfig], mesh: ParallelConfig) -> list[int]:
    """How many more bytes a forward pass saves where all processes share the experts."""
    more = []
    parallel = joined(mesh)
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
    parallel = joined(FSDP)
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


def gathered(configs: list[LoriiniConfig], mesh: ParallelConfig) -> list[tuple[bool, bool, bool, float]]:
    """Of a sharded model that is gathered: whether it is the same, has as many parameters and drew no random
    number; and how many whole models are alive at once, without four tensors on their way.
    """
    results = []
    parallel = joined(mesh)
    for config in configs:
        source = LoriiniForCausalLM(config)
        model = build_model(config, parallel, "fp32", make=lambda config: source)  # noqa: B023
        random = torch.get_rng_state()
        with LiveBytes() as live:
            live.count(model.parameters())
            whole = gather_model(model, parallel)
        if whole is None:
            continue
        expected, actual = weights_and_buffers(source), weights_and_buffers(whole)
        same = all(torch.equal(actual[name], tensor) for name, tensor in expected.items())
        undrawn = torch.equal(random, torch.get_rng_state())
        ours, theirs = ([p.nbytes for p in m.parameters()] for m in (source, whole))
        results.append((same, undrawn, ours == theirs, (live.peak - 4 * max(ours)) / sum(ours)))
    return results


def copied_into_experts(config: LoriiniConfig, mesh: ParallelConfig) -> tuple[dict[str, Any], int]:
    """The weights of a mixture copied from a sharded dense model, and the bytes broadcast for it."""
    parallel, sent, broadcast = joined(mesh), [], dist.broadcast

    def counted(value: Tensor, src: int) -> None:
        sent.append(value.nbytes)
        broadcast(value, src)

    torch.manual_seed(0)
    dense = build_model(tiny_config("dense", num_experts=1), parallel, "fp32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "broadcast", counted)
        mixture = copy_into_sharded_experts(dense, config, parallel, "fp32")
    return {name: full_tensor(t).numpy() for name, t in weights_and_buffers(mixture).items()}, sum(sent)


TWO_PROCESSES = {
    "bf16": (weights_in_bf16, ROUTED),
    "fsdp": (sharded_gradients, CONFIGURATIONS[::4], FSDP),
    "experts": (sharded_gradients, SHALLOW, EXPERTS),
    "whole": (sharded_gradients, SELECTING[::2], WHOLE),
    "gathered": (gathered, GATHERED, EXPERTS),
    "copied": (copied_into_experts, tiny_config(), EXPERTS),
    "stepped": (stepped, stepping(2)),
    "saved": (saved_more, KEEPING, EXPERTS),
    "saved of whole": (saved_more, [tiny_config("ec-token", hidden_size=64)], WHOLE),
}


@pytest.fixture(scope="module")
def two_processes() -> dict[str, Any]:
    """What the first of two processes returns from each task."""
    first, _ = job(2, in_one_group, list(TWO_PROCESSES.values()))
    return dict(zip(TWO_PROCESSES, first, strict=True))


SHARES = [[*map(shallow, SELECTING[1::2][i :: len(WHOLE_OF_FOUR)])] for i in range(len(WHOLE_OF_FOUR))]
"""The configurations whose gradients are computed in each mesh of WHOLE_OF_FOUR."""


@pytest.fixture(scope="module")
def four_processes() -> list[Any]:
    """What the first of four processes returns: the gradients of each of SHARES, and the steps."""
    gradients = [(sharded_gradients, *task) for task in zip(SHARES, WHOLE_OF_FOUR, strict=True)]
    returned: list[Any] = job(4, in_one_group, [*gradients, (stepped, stepping(4))])[0]
    return returned


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


def test_so_are_those_of_whole_experts_in_any_mesh_of_four(four_processes: list[Any]) -> None:
    """Of the other designs: in one group of all, sharded besides, and in replicas."""
    for configs, results in zip(SHARES, four_processes, strict=False):
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


def test_a_model_is_gathered_without_another_copy_of_it(two_processes: dict[str, Any]) -> None:
    for config, (same, undrawn, tied, alive) in zip(GATHERED, two_processes["gathered"], strict=True):
        assert same, config.routing
        assert undrawn
        assert tied
        assert alive < 1.6  # half of it sharded, and the whole


def test_copies_of_a_sharded_model_are_those_of_a_single_process(two_processes: dict[str, Any]) -> None:
    """Routers get the same random numbers; only they are sent, as experts are copied from the dense model."""
    weights, sent = two_processes["copied"]
    torch.manual_seed(0)
    dense = LoriiniForCausalLM(tiny_config("dense", num_experts=1))
    expected = weights_and_buffers(converted(dense, tiny_config()))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(torch.from_numpy(weights[name]), value) for name, value in expected.items())
    assert sent == sum(expected[name].nbytes for name in expected.keys() - dense.state_dict().keys())
    assert 0 < sent < 0.1 * sum(value.nbytes for value in expected.values())


def assert_steps_of_one_process(
    case: Stepped, processes: int, found: tuple[dict[str, Any], list[bool], float, float]
) -> None:
    """AdamW divides tiny gradients by their own size, so its changes would show what rounding did to them."""
    place, mesh, name = case
    torch.manual_seed(0)
    config = STEPPING[place]
    model, ids = LoriiniForCausalLM(config).train(), batch(config)
    expected, _ = two_steps(model, name, lambda: model(ids, labels=ids).loss.backward())
    changes, taken, received, apart = found
    assert apart < 1e-5, case
    assert taken == [True, False]
    matrices = hidden_matrices(model) if name == "muon" else set()
    for weight, parameter in model.named_parameters():
        (mean, change), (its_mean, its_change) = (
            map(torch.from_numpy, each[weight]) for each in (changes, expected)
        )
        torch.testing.assert_close(mean, its_mean, rtol=1e-3, atol=1e-8, msg=f"{case}, mean of {weight}")
        if parameter in matrices:
            assert its_change.abs().max() > 0.02
            torch.testing.assert_close(change, its_change, rtol=0, atol=1e-5, msg=f"{case}, {weight}")
    ranks = mesh.shard or processes
    sent = muon_bytes(config, ranks, mesh.experts, mesh.share_experts) if matrices else 0
    assert received == sent / BFLOAT16, case


def test_shards_take_the_steps_of_one_process(two_processes: dict[str, Any]) -> None:
    """And receive what the estimate says."""
    for case, found in zip(stepping(2), two_processes["stepped"], strict=True):
        assert_steps_of_one_process(case, 2, found)


def test_so_do_shards_in_any_mesh_of_four(four_processes: list[Any]) -> None:
    for case, found in zip(stepping(4), four_processes[-1], strict=True):
        assert_steps_of_one_process(case, 4, found)


def test_a_group_keeps_the_states_that_the_estimate_says(two_processes: dict[str, Any]) -> None:
    for config, more in zip(KEEPING, two_processes["saved"], strict=True):
        states = config.num_hidden_layers * others_states(config, 2, BATCH, LENGTH)
        assert more == pytest.approx(4 * states, rel=0.15)  # besides, gates


def test_whole_experts_keep_no_states_of_others(two_processes: dict[str, Any]) -> None:
    (more,) = two_processes["saved of whole"]
    assert abs(more) < 0.01 * 4 * 2 * BATCH * LENGTH * 64  # of one copy in both layers
