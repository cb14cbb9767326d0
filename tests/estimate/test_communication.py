"""Parameters, counted in the model."""

import torch

from covering import one_of_each
from loriini import LoriiniForCausalLM
from loriini.estimate.communication import count_parameters
from tiny import BLOCKS, tiny_config

EXPERTS = 4


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
