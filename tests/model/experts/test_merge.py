"""The merge as an operator against its definition."""

import pytest
import torch

from loriini.model.experts.affine import affine_by_merging
from loriini.model.kernels.products import merge, merged_weight


@pytest.mark.parametrize("gates", ["trained", "fixed"])
@pytest.mark.parametrize("shape", [(3, 5, 7), (8, 4, 6)])
def test_the_operator_has_the_gradients_of_its_definition(gates: str, shape: tuple[int, int, int]) -> None:
    E, N, X = shape
    g = torch.randn(N, E, dtype=torch.float64, requires_grad=gates == "trained")
    w, probe = torch.randn(E, X, dtype=torch.float64, requires_grad=True), torch.randn(N, X).double()
    torch.testing.assert_close(merge(g, w), g @ w)
    of = [w, g] if gates == "trained" else [w]
    found = torch.autograd.grad((merge(g, w) * probe).sum(), of)
    torch.testing.assert_close(found, torch.autograd.grad(((g @ w) * probe).sum(), of))


def test_the_operator_passes_gradcheck_and_opcheck() -> None:
    g, w = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((5, 3), (3, 7)))
    assert torch.autograd.gradcheck(merge, (g, w))
    torch.library.opcheck(merge, (g, w))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_merge_that_is_made_again_has_the_gradients_of_one_that_is_kept_compiled_or_not() -> None:
    torch.compiler.reset()
    x_NSD = torch.randn(5, 6, 7)
    g, w = torch.randn(5, 3, requires_grad=True), torch.randn(3, 4, 7, requires_grad=True)

    def again(g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return affine_by_merging(g)(x_NSD, w)

    kept = torch.autograd.grad((x_NSD @ merged_weight(g, w).mT).square().sum(), (g, w))
    for merging in (again, torch.compile(again, backend="aot_eager", fullgraph=True)):
        torch.testing.assert_close(torch.autograd.grad(merging(g, w).square().sum(), (g, w)), kept)
