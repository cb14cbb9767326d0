"""Means of states are those of float32, whatever the states' dtype."""

import pytest
import torch
from torch import Tensor

from loriini.routing.pooling import segment_means
from loriini.routing.unit import RoutingContext

LONG = 700
"""Tokens of a segment: a count or a sum in bfloat16 stays at 256 ones."""


def padded(left: int) -> RoutingContext:
    positions_BH = torch.cat([torch.full((1, left), -1), torch.arange(LONG)[None]], dim=1)
    return RoutingContext(1, left + LONG, positions_BH=positions_BH)


def states(length: int) -> Tensor:
    return (1 + torch.rand(1, length, 8)).bfloat16()


@pytest.mark.parametrize("left", [0, 3])
def test_the_mean_of_a_long_segment_in_bfloat16(left: int) -> None:
    x_BHD = states(left + LONG)
    context = padded(left) if left else RoutingContext(1, LONG)
    mean = segment_means(x_BHD, context, LONG, 1)
    assert mean.dtype == torch.bfloat16
    torch.testing.assert_close(mean[:, 0].float(), x_BHD[:, left:].float().mean(1), rtol=2**-8, atol=0)
