"""Products as bags of rows against matrix products."""

import pytest
import torch

from covering import grid
from loriini.model.kernels import bags

DTYPES = [torch.float32, torch.bfloat16]
CLOSE = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.bfloat16: {"rtol": 0.01, "atol": 0.01}}


@grid(units=[1, 2, 5], experts=[1, 3, 8], parameters=[1, 7 * 13, 3 * 256], dtype=DTYPES)
def test_a_weighted_sum_by_bags_equals_the_product(
    units: int, experts: int, parameters: int, dtype: torch.dtype
) -> None:
    g, w = torch.rand(units, experts).to(dtype), torch.randn(experts, parameters).to(dtype)
    found = bags.weighted_sum_by_bags(g, w)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), g.double() @ w.double(), **CLOSE[dtype])


@grid(units=[1, 3], width=[1, 16], outputs=[7, 512, 528], dtype=DTYPES)
def test_a_linear_map_by_bags_equals_the_product(
    units: int, width: int, outputs: int, dtype: torch.dtype
) -> None:
    x, w = torch.randn(units, width).to(dtype), torch.randn(units, outputs, width).to(dtype)
    found = bags.linear_by_bags(x, bags.in_blocks(w))
    assert (found.dtype, found.shape) == (dtype, (units, outputs))
    expected = torch.stack([weight.double() @ row.double() for row, weight in zip(x, w, strict=True)])
    torch.testing.assert_close(found.double(), expected, **CLOSE[dtype])


@pytest.mark.parametrize(
    ("units", "outputs", "threads", "width"),
    [
        (8, 7, 1, 7),
        (8, 256, 1, 256),
        (8, 512, 2, 256),
        (8, 1408, 2, 176),
        (8, 1365, 1, 195),
        (8, 262, 1, 131),
        (8, 514, 1, 514),
        (1, 1024, 8, 128),
        (1, 1024, 64, 64),
        (2, 1024, 16, 128),
    ],
)
def test_blocks_divide_the_outputs_and_are_enough_for_all_threads(
    units: int, outputs: int, threads: int, width: int
) -> None:
    assert bags.block_width(units, outputs, threads) == width


def test_bags_are_for_numbers_that_a_cpu_sums_fast() -> None:
    assert bags.bags_are_fast(torch.empty(1, dtype=torch.bfloat16))
    assert not bags.bags_are_fast(torch.empty(1, dtype=torch.float64))
    assert not bags.bags_are_fast(torch.empty(1, device="meta"))
