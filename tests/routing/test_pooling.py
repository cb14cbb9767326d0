"""Means of states are those of float32, whatever the states' dtype."""

import pytest
import torch
from torch import Tensor

from loriini.routing.pooling import prompt_mean, segment_means
from loriini.routing.unit import RoutingContext

LONG = 700
"""Tokens of a segment: a count or a sum in bfloat16 stays at 256 ones."""


def padded(left: int) -> RoutingContext:
    positions_BH = torch.cat([torch.full((1, left), -1), torch.arange(LONG)[None]], dim=1)
    return RoutingContext(1, left + LONG, positions_BH=positions_BH)


def states(length: int) -> Tensor:
    return (1 + torch.rand(1, length, 8)).bfloat16()


@pytest.mark.parametrize("left", [0, 3])
def test_the_means_of_a_long_segment_and_prompt_in_bfloat16(left: int) -> None:
    x_BHD = states(left + LONG)
    context = padded(left) if left else RoutingContext(1, LONG)
    segment, prompt = (
        segment_means(x_BHD, context, LONG, 1)[:, 0],
        prompt_mean(x_BHD, context, torch.tensor([LONG])),
    )
    for mean_BD in (segment, prompt):
        assert mean_BD.dtype == torch.bfloat16
        torch.testing.assert_close(mean_BD.float(), x_BHD[:, left:].float().mean(1), rtol=2**-8, atol=0)


def test_autocast_does_not_round_the_states_of_a_prompt() -> None:
    x_BHD, lengths_B = states(LONG).float() + torch.rand(1, LONG, 8) / 2**9, torch.tensor([LONG - 9])
    context = RoutingContext(1, LONG)
    with torch.autocast("cpu", torch.bfloat16):
        mean_BD = prompt_mean(x_BHD, context, lengths_B)
    torch.testing.assert_close(mean_BD, x_BHD[:, :-9].mean(1))
