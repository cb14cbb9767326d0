"""Communication, counted by hand."""

import pytest
import torch

from covering import one_of_each
from loriini import LoriiniForCausalLM
from loriini.estimate.communication import (
    RankStep,
    count_parameters,
    expert_parallel,
    expert_wise,
    fsdp,
)
from tiny import BLOCKS, SEGMENT, tiny_config

D, LAYERS, EXPERTS = 16, 2, 4
WORK = RankStep(instances=3, length=8, micro_batches=5, itemsize=2)
TOKENS = 24


@one_of_each(design=["dense", "lory", "mixtral", "deepseek-v3"], block=BLOCKS)
def test_counted_parameters_are_those_of_the_model(design: str, block: str) -> None:
    experts = 1 if design == "dense" else EXPERTS
    config = tiny_config(design, block=block, num_experts=experts, lm_head_bias=block == "olmoe")
    with torch.device("meta"):
        model = LoriiniForCausalLM(config)
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    here = count_parameters(config)
    assert here.experts == sum(n for name, n in sizes.items() if ".experts." in name)
    assert here.root == sum(n for name, n in sizes.items() if ".layers." not in name)
    assert here.total == sum(sizes.values())


def test_fsdp_gathers_layers_twice_and_reduces_once() -> None:
    config = tiny_config()
    here = count_parameters(config)
    received = fsdp(config, WORK, 4)
    assert received.parameters == pytest.approx(
        5 * 3 / 4 * (2 * 2 * (here.experts + here.layers) + 4 * here.root)
    )
    assert received.gradients == pytest.approx(5 * 3 / 4 * 4 * here.total)
    assert received.activations == 0


@pytest.mark.parametrize(
    ("design", "gated"), [("lory", 3 * 8 // SEGMENT), ("smear", 3), ("mixtral", TOKENS), ("aoe", TOKENS)]
)
def test_expert_wise_moves_states_and_gates_and_no_expert(design: str, gated: int) -> None:
    config = tiny_config(design)
    received = expert_wise(config, WORK, 2, 2)
    exchanges = 2 * TOKENS * D * 2 + gated * EXPERTS * 4  # states in, outputs out; gates in
    assert received.activations == 5 * LAYERS * 2 * exchanges  # forward and backward, from one other rank
    here = count_parameters(config)
    # The group is all there is, so that slices of experts stay where they are.
    assert received.parameters == pytest.approx(5 / 2 * (2 * 2 * here.layers + 4 * here.root))
    low = LAYERS * EXPERTS * (config.low_rank or 0) * D
    summed = 2 * low * 2 / 2  # in bfloat16, to one other rank and back
    assert received.gradients == pytest.approx(5 * (1 / 2 * 4 * (here.layers + here.root) + summed))
    many = tiny_config(design, num_experts=2 * EXPERTS)
    assert received.activations < expert_wise(many, WORK, 2, 2).activations < 1.5 * received.activations


def test_expert_parallelism_moves_chosen_tokens_there_and_back() -> None:
    config = tiny_config("mixtral")
    received = expert_parallel(config, WORK, 2, 2)
    assert received is not None
    states, numbers = TOKENS * 2 * D * 2, EXPERTS * 4
    assert received.activations == 5 * LAYERS * (4 * states + numbers) / 2
    assert expert_parallel(tiny_config("lory"), WORK, 2, 2) is None
    assert expert_parallel(tiny_config("mixtral", num_experts=3), WORK, 2, 2) is None
