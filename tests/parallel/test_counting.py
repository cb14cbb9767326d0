"""What processes send each other, counted by hand."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from loriini import DESIGNS, LoriiniConfig
from loriini.parallel.mesh import ParallelConfig, ShareExperts
from loriini.parallel.sharding import build_model, reduce_gradients
from loriini.routing.selection import fixed_counts
from sharded import LENGTH, backward, batch, joined
from tiny import SEGMENT, label_arguments, tiny_config
from together import in_one_group, job

PRECISIONS = {"fp32": 4, "bf16": 2}
"""Precision → the bytes of a number in it."""
FSDP = ParallelConfig()
SHARDED = tiny_config("lory")
SPLIT = [tiny_config(design) for design in ("lory", "smear", "mixtral", "aoe", "label", "ec-token")]
SENDING = [([*SPLIT, tiny_config("lory", intermediate_size=48)], "fp32"), (SPLIT[:3], "bf16")]
SOFT = replace(DESIGNS["lory"], combination="outputs", segment_length=SEGMENT)
SELECTED = [
    tiny_config(design) for design in (SOFT, "mixtral", "sequence-top1", "aoe", "label", "ec-segment")
]
ALL_TO_ALL = "alltoall_base_"


class SentBytes(TorchDispatchMode):
    """While inside, `sent` adds up this process's bytes by collective, as ring algorithms send them.

    Only collectives of `groups` count. Gathers, scatters of sums and
    all-to-alls of single tensors are counted. All-reduces are named with 0 bytes, and DTensor's collectives,
    such as the sum of a replicated parameter's gradients, are not seen.
    """

    def __init__(self, *groups: dist.ProcessGroup) -> None:
        super().__init__()
        self.groups = groups
        self.sent: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count a collective and call it."""
        if func.namespace == "c10d":
            boxed = next(
                a for a in args if isinstance(a, torch.ScriptObject) and "ProcessGroup" in str(a._type())
            )
            group = dist.ProcessGroup.unbox(boxed)
            if group in self.groups:
                kind, tensors = func._opname, [t for t in args[:2] if isinstance(t, Tensor)]
                smaller = min((t.nbytes for t in tensors), default=0)
                sent = _to_others(*args[:5]) if kind == ALL_TO_ALL else (group.size() - 1) * smaller
                self.sent[kind] = self.sent.get(kind, 0) + sent
        return func(*args, **(kwargs or {}))


def _to_others(_: Tensor, x: Tensor, boxed: Any, received_G: list[int], sent_G: list[int]) -> int:
    """The bytes of an all-to-all that leave this process: all but the rows that it keeps."""
    group = dist.ProcessGroup.unbox(boxed)
    kept = sent_G[group.rank()] if sent_G else len(x) // group.size()
    return x.nbytes - kept * x[:1].nbytes


def sent_in_group(
    configs: list[LoriiniConfig], precision: str, share_experts: ShareExperts
) -> list[dict[str, int]]:
    """What this process sends within its expert group in one pass, forward and backward."""
    counts = []
    parallel = joined(ParallelConfig(experts=2, share_experts=share_experts))
    for config in configs:
        model = build_model(config, parallel, precision)
        ids = batch(config)[:1].expand(2, -1)
        with SentBytes(parallel.mesh.get_group("experts")) as mode:
            backward(model, ids, label_arguments(model, 2), parallel, precision)
        counts.append(mode.sent)
    return counts


def sent_by_fsdp(config: LoriiniConfig, reduced: tuple[bool, ...]) -> dict[str, int]:
    """What this process sends to gather shards and to reduce gradients.

    In one forward and backward pass for each of `reduced`, whether it reduces the gradients.
    """
    parallel = joined(FSDP)
    model = build_model(config, parallel, "fp32")
    with SentBytes(*(one.get_group() for one in parallel.fsdp_meshes)) as mode:
        for reduce in reduced:
            reduce_gradients(model, reduce)
            backward(model, batch(config)[:1], {}, parallel)
    return mode.sent


@pytest.fixture(scope="module")
def sent() -> list[list[Any]]:
    """What each of four processes sends in each task: in groups of two, then in shards of all."""
    tasks = [(sent_in_group, *sending, "width") for sending in SENDING]
    tasks.append((sent_in_group, SELECTED, "bf16", "whole"))
    of_shards = [(sent_by_fsdp, SHARDED, reduced) for reduced in ((True,), (False, False, True))]
    return job(4, in_one_group, [*tasks, *of_shards])


def test_fsdp_sends_all_gradients_once_a_step(sent: list[list[Any]]) -> None:
    once, of_three = sent[0][-2:]
    gradients = 4 * SHARDED.parameters()[0] * 3 / 4
    assert once["_reduce_scatter_base_"] == pytest.approx(gradients, rel=0.02)  # shards are of equal size
    assert of_three["_reduce_scatter_base_"] == once["_reduce_scatter_base_"]
    assert of_three["_allgather_base_"] == 3 * once["_allgather_base_"]


def test_expert_wise_parallelism_sends_activations_only(sent: list[list[Any]]) -> None:
    """But for AoE's W_down, whose gradients DTensor sums: `SentBytes` does not see it."""
    for returned in sent:
        for (configs, precision), counts in zip(SENDING, returned, strict=False):
            for config, count in zip(configs, counts, strict=True):
                units, span = units_of(config)
                states = 2 * units * span * config.hidden_size * PRECISIONS[precision]
                gates, learned = units * config.num_experts * 4, config.routing.data_dependent
                layers = config.num_hidden_layers
                assert count["_allgather_base_"] == layers * (states + gates)
                assert count["_reduce_scatter_base_"] == layers * (states + (gates if learned else 0))
                assert len(count) == 2


def units_of(config: LoriiniConfig) -> tuple[int, int]:
    """The units of two instances, and the tokens of each; the last one of an instance is filled up."""
    span = config.design.unit_length(LENGTH)
    return 2 * -(-LENGTH // span), span


def test_expert_parallelism_sends_pairs_there_and_back(sent: list[list[Any]]) -> None:
    """All processes have the same data, so that the mean load is even; with labels, that of each never is."""
    for i, config in enumerate(SELECTED):
        counts = [returned[2][i] for returned in sent]
        assert all(count.keys() == {ALL_TO_ALL} for count in counts)
        sizes = [count[ALL_TO_ALL] for count in counts]
        (units, span), experts = units_of(config), config.num_experts
        fixed = fixed_counts(config.routing, units, experts, training=True, padded=False).per_expert
        pairs = units * config.experts_per_token if fixed is None else experts * fixed
        numbers = 0 if fixed is not None else 4 * experts  # sent first, if the design leaves them open
        states = 4 * pairs * span * config.hidden_size * PRECISIONS["bf16"]
        expected = config.num_hidden_layers * (states + numbers) / 2
        assert sum(sizes) / len(sizes) == pytest.approx(expected, rel=1e-9)
        if config.routing.selection in ("expert_choice", "all"):
            assert len(set(sizes)) == 1
        elif config.routing.selection == "label":
            assert len(set(sizes)) > 1
