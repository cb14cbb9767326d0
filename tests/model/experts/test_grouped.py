"""Products of sorted rows: every way equals one product per expert, whatever the numbers of rows."""

from collections.abc import Sequence

import pytest
import torch

from loriini.model.kernels.grouped import PARTS, _window, grouped_linear, grouped_linear_loop, rounded_groups

GROUPS = {
    "equal": (16, 16, 16, 16),
    "uneven": (1, 37, 2, 24),
    "none at the start": (0, 33, 31, 0),
    "all in the last": (0, 0, 0, 64),
    "many small at the end": (57, 3, 2, 2),
    "one row": (0, 1, 0, 0),
    "no rows": (0, 0, 0, 0),
}


def ends_of(rows_E: Sequence[int]) -> torch.Tensor:
    return torch.tensor(rows_E).cumsum(0).to(torch.int32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [16, 9], ids=["aligned", "not aligned"])
@pytest.mark.parametrize("groups", GROUPS)
def test_groups_equal_one_product_per_expert(groups: str, width: int, dtype: torch.dtype) -> None:
    rows = sum(GROUPS[groups])
    x, weight = torch.randn(rows, width, dtype=dtype), torch.randn(4, 24, width, dtype=dtype)
    dy, ends = torch.randn(rows, 24, dtype=dtype), ends_of(GROUPS[groups])
    close = {"rtol": 0.02, "atol": 0.05} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
    results = []
    for multiply in (grouped_linear, grouped_linear_loop):
        inputs = (x.clone().requires_grad_(), weight.clone().requires_grad_())
        y = multiply(*inputs, ends)
        y.backward(dy)
        results.append((y, *(each.grad for each in inputs)))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, **close)


def test_the_operator_is_sound_for_autograd_and_torch_compile() -> None:
    inputs = (torch.randn(64, 8), torch.randn(4, 24, 8))
    given = [each.to(torch.bfloat16).requires_grad_() for each in inputs]
    torch.library.opcheck(rounded_groups, (*given, ends_of(GROUPS["uneven"])))


def test_a_compiled_product_is_one_graph() -> None:
    x, weight = torch.randn(64, 16, dtype=torch.bfloat16), torch.randn(4, 24, 16, dtype=torch.bfloat16)
    compiled = torch.compile(grouped_linear, backend="aot_eager", fullgraph=True)
    for groups in ("equal", "uneven"):
        ends = ends_of(GROUPS[groups])
        assert torch.equal(compiled(x, weight, ends), grouped_linear(x, weight, ends))


def test_few_numbers_of_rows_are_multiplied() -> None:
    rows = 5000
    lengths = set()
    for size in range(1024, 4096):
        for start in (0, 7, rows - size):
            first, last = _window(start, start + size, rows)
            assert 0 <= first <= start
            assert start + size <= last <= rows
            assert last - first < size * (1 + 1 / PARTS)
            lengths.add(last - first)
    assert len(lengths) == 2 * PARTS + 1
    assert _window(3, 15, 13 + 2) == (3, 15)  # at most 2 · PARTS rows are as they are
