"""One batch in several processes: the gradients of one process, and the bytes that are estimated."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from loriini import DESIGNS, LoriiniConfig, LoriiniForCausalLM
from loriini.estimate.activations import saved_bytes
from loriini.estimate.communication import GroupBytes, RankStep, expert_wise_bytes, fsdp
from loriini.estimate.memory import others_states
from loriini.hardware import autocast
from loriini.parallel.counting import SentBytes
from loriini.parallel.expertwise import slice_experts
from loriini.parallel.mesh import Parallel, ParallelConfig, join_mesh
from loriini.parallel.sharding import build_model, clip_gradients, full_tensor, reduce_gradients
from tiny import assert_same_gradients, label_arguments, tiny_config
from together import in_one_group, job

FSDP, EXPERTS = ParallelConfig(), ParallelConfig(experts=2)
BATCH, LENGTH = 4, 12


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
SENDING = [tiny_config(design) for design in ("lory", "smear", "mixtral", "aoe", "label", "ec-token")]
SENDING.append(tiny_config("lory", intermediate_size=48))
BLOCKS = [tiny_config("lory", block=block) for block in ("llama", "gpt2")]
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


def single_gradients(config: LoriiniConfig) -> tuple[dict[str, Tensor], float]:
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


def clipped_norm(config: LoriiniConfig, mesh: ParallelConfig) -> tuple[float, float]:
    """The norm of the gradients before clipping to 0.01, and after."""
    parallel = join_mesh(mesh)
    model = build_model(config, parallel, "fp32")
    backward(model, batch(config), {}, parallel)
    return clip_gradients(model, 0.01).item(), clip_gradients(model, 1e9).item()


def sent_in_group(configs: list[LoriiniConfig], experts: int, precision: str) -> list[dict[str, int]]:
    """What this process sends within its expert group in one pass, forward and backward."""
    counts = []
    parallel = join_mesh(ParallelConfig(experts=experts))
    for config in configs:
        model = build_model(config, parallel, precision)
        ids = batch(config)[:1].expand(2, -1)
        with SentBytes(parallel.mesh.get_group("experts")) as mode:
            backward(model, ids, label_arguments(model, 2), parallel, precision)
        counts.append(mode.sent)
    return counts


def sent_by_fsdp(configs: list[LoriiniConfig], reduced: tuple[bool, ...] = (True,)) -> list[dict[str, int]]:
    """What this process sends to gather shards and to reduce gradients.

    In one forward and backward pass for each of `reduced`, whether it reduces the gradients.
    """
    counts = []
    parallel = join_mesh(FSDP)
    for config in configs:
        model = build_model(config, parallel, "fp32")
        with SentBytes(parallel.mesh.get_group("shard"), parallel.data_mesh.get_group("data")) as mode:
            for reduce in reduced:
                reduce_gradients(model, reduce)
                backward(model, batch(config)[:1], {}, parallel)
        counts.append(mode.sent)
    return counts


def saved_more(configs: list[LoriiniConfig]) -> list[int]:
    """How many more bytes a forward pass saves where all processes share the experts."""
    more = []
    mesh = join_mesh(EXPERTS).mesh["experts"]
    for config in configs:
        model = LoriiniForCausalLM(config).train()
        ids, labels = batch(config), label_arguments(model, BATCH)
        apart = saved_bytes(model, lambda: model(ids, shift_labels=ids, **labels))  # noqa: B023
        for mixture in model.model.mixtures:
            mixture.experts = slice_experts(mixture.experts, mesh)
        shared = saved_bytes(model, lambda: model(ids, shift_labels=ids, **labels))  # noqa: B023
        more.append(shared - apart)
    return more


TWO_PROCESSES = {
    "fsdp": (sharded_gradients, CONFIGURATIONS[::4], FSDP),
    "experts": (sharded_gradients, CONFIGURATIONS, EXPERTS),
    "clipped": (clipped_norm, tiny_config("aoe"), EXPERTS),
    "sent": (sent_by_fsdp, BLOCKS),
    "saved": (saved_more, KEEPING),
    "accumulated": (sent_by_fsdp, BLOCKS, (False, False, True)),
}


@pytest.fixture(scope="module")
def two_processes() -> dict[str, Any]:
    """What the first of two processes returns from each task."""
    return dict(zip(TWO_PROCESSES, job(2, in_one_group, list(TWO_PROCESSES.values()))[0], strict=True))


@pytest.mark.parametrize("mesh", ["fsdp", "experts"])
def test_gradients_are_those_of_a_single_process(mesh: str, two_processes: dict[str, Any]) -> None:
    for config, (gradients, norm) in zip(TWO_PROCESSES[mesh][1], two_processes[mesh], strict=True):
        expected, expected_norm = single_gradients(config)
        assert norm == pytest.approx(expected_norm, rel=1e-5)
        actual = {name: torch.from_numpy(gradient) for name, gradient in gradients.items()}
        assert_same_gradients(actual, expected, rtol=1e-3, atol=1e-6)


def test_gradients_are_clipped_to_their_norm(two_processes: dict[str, Any]) -> None:
    before, after = two_processes["clipped"]
    assert before > 0.01
    assert after == pytest.approx(0.01, rel=1e-3)


def test_fsdp_sends_what_the_estimate_says_to_1_percent(two_processes: dict[str, Any]) -> None:
    step = RankStep(instances=1, length=LENGTH, micro_batches=1, itemsize=4)
    for config, count in zip(BLOCKS, two_processes["sent"], strict=True):
        expected = fsdp(config, step, 2, 2)
        assert count["_allgather_base_"] == pytest.approx(expected.parameters, rel=0.01)
        assert count["_reduce_scatter_base_"] == pytest.approx(expected.gradients, rel=0.01)


def test_gradients_reduced_once_are_sent_once(two_processes: dict[str, Any]) -> None:
    step = RankStep(instances=1, length=LENGTH, micro_batches=3, itemsize=4, reduce_once=True)
    for config, count in zip(BLOCKS, two_processes["accumulated"], strict=True):
        expected = fsdp(config, step, 2, 2)
        assert count["_allgather_base_"] == pytest.approx(expected.parameters, rel=0.01)
        assert count["_reduce_scatter_base_"] == pytest.approx(expected.gradients, rel=0.01)


def test_a_group_keeps_the_states_that_the_estimate_says(two_processes: dict[str, Any]) -> None:
    for config, more in zip(KEEPING, two_processes["saved"], strict=True):
        states = others_states(config, 2, BATCH, LENGTH)
        assert more == pytest.approx(4 * config.num_hidden_layers * states, rel=0.15)  # besides, gates


def test_expert_wise_parallelism_sends_activations_only() -> None:
    """In groups of three of six processes, which no other collective uses."""
    precisions = {"fp32": 4, "bf16": 2}
    tasks = [(sent_in_group, SENDING, 3, precision) for precision in precisions]
    for returned in job(6, in_one_group, tasks):
        for counts, state_bytes in zip(returned, precisions.values(), strict=True):
            for config, count in zip(SENDING, counts, strict=True):
                expected = expert_wise_bytes(config, 3, 2, LENGTH, state_bytes)
                found = GroupBytes(count.pop("_allgather_base_"), count.pop("_reduce_scatter_base_"))
                assert found == expected
                assert not count
