"""The fast paths against their naive twins, and the merge against its definition."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from covering import grid
from loriini.model.experts.stacked import (
    Experts,
    FactorizedExperts,
    GeluExperts,
    SwigluExperts,
    by_outputs_loop,
    by_parameters_loop,
)
from loriini.model.kernels import products
from loriini.model.kernels.products import keep, linear_by_unit, linear_by_unit_twin, merged_linear
from tiny import assert_same_gradients, gradients

Path = Callable[[Tensor, Tensor], Tensor]
TOLERANCE = {torch.float64: {"rtol": 1e-10, "atol": 1e-10}, torch.float32: {"rtol": 1e-4, "atol": 1e-5}}
SIZES = [(16, 24), (13, 21)]
"""(D, F) with rows of a multiple of 16 bytes, which the grouped kernel takes, and without."""
DTYPES = [torch.float64, torch.float32]


NODES = {
    "swiglu": ["gate", "up", "activated_gate", "hidden", "output"],
    "gelu": ["up", "hidden", "output"],
    "factorized": ["low_rank", "output"],
}
CLOSE = {torch.float64: {}, torch.bfloat16: {"rtol": 0.05, "atol": 0.05}}
KINDS = {"swiglu": SwigluExperts, "gelu": GeluExperts, "factorized": partial(FactorizedExperts, low_rank=8)}


def make_experts(experts: int, d: int, f: int, dtype: torch.dtype, kind: str = "swiglu") -> Experts:
    made = KINDS[kind](experts, d, f).to(dtype)
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return made


def outcome(experts: Experts, path: Path, x: Tensor, gates: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """A path's output and the gradients of the experts, the states and (with several experts) the gates."""
    experts.zero_grad()
    x, gates = x.clone().requires_grad_(), gates.clone().requires_grad_()
    y = path(x, gates)
    (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
    of_gates = {"gates": gates.grad} if gates.shape[-1] > 1 else {}
    return y.detach(), {**gradients(experts), "x": x.grad, **of_gates}


def assert_twins(experts: Experts, fast: Path, naive: Path, x: Tensor, gates: Tensor) -> None:
    """Both give the same output and the same gradients."""
    (y, found), (expected, wanted) = outcome(experts, fast, x, gates), outcome(experts, naive, x, gates)
    torch.testing.assert_close(y, expected, **TOLERANCE[x.dtype])
    assert_same_gradients(found, wanted, **TOLERANCE[x.dtype])


@grid(kind=list(KINDS), experts=[1, 4, 8], size=SIZES, dtype=DTYPES)
def test_merging_equals_its_twin(kind: str, experts: int, size: tuple[int, int], dtype: torch.dtype) -> None:
    module = make_experts(experts, *size, dtype, kind)
    gates = torch.randn(5, experts, dtype=dtype).softmax(-1)
    x = torch.randn(5, 3, size[0], dtype=dtype)
    for recompute in (False, True):
        merged = partial(module.by_parameters, recompute=recompute)
        assert_twins(module, merged, lambda x, g: by_parameters_loop(module, x, g), x, gates)


@grid(kind=list(KINDS), experts=[1, 4, 8], units=[1, 5], slots=[1, 3, 9], dtype=[*DTYPES, torch.bfloat16])
@torch.no_grad()
def test_sums_of_products_and_merges_that_are_kept_equal_the_merges_twin(
    kind: str, experts: int, units: int, slots: int, dtype: torch.dtype
) -> None:
    module = make_experts(experts, 16, 24, dtype, kind)
    gates = torch.randn(units, experts).softmax(-1) * (torch.rand(units, experts) < 0.8)
    x = torch.randn(units, slots, 16, dtype=dtype)
    weights = module(gates, Experts.merge)
    sums, merged = module(x, Experts.by_sums, gates), module(x, Experts.merged, weights)
    kept = module(x, Experts.merged, {name: keep(weight) for name, weight in weights.items()})
    torch.testing.assert_close(kept, merged, rtol=0.02, atol=0.02)
    expected = by_parameters_loop(module.double(), x.double(), gates.double())
    for found in (sums, merged):
        assert found.dtype == dtype
        tolerance = TOLERANCE.get(dtype, {"rtol": 0.05, "atol": 0.1})
        torch.testing.assert_close(found.double(), expected, **tolerance)


@grid(
    units=[1, 5],
    slots=[1, 3],
    outputs=[8, 24],
    columns=[False, True],
    dtype=[*DTYPES, torch.bfloat16],
    amx=[False, True],
)
def test_products_by_unit_equal_their_twin(
    units: int,
    slots: int,
    outputs: int,
    columns: bool,
    dtype: torch.dtype,
    amx: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "AMX", amx)
    x, weight = torch.randn(units, slots, 16, dtype=dtype), torch.randn(units, outputs, 16, dtype=dtype)
    if columns:
        x = x.mT.contiguous().mT
    x, weight = x.requires_grad_(), weight.requires_grad_()
    fast, naive = linear_by_unit(x, weight), linear_by_unit_twin(x, weight)
    close = {**TOLERANCE, **CLOSE}[dtype]
    torch.testing.assert_close(fast, naive, **close)
    dy = torch.randn_like(naive)
    gradients_of = (torch.autograd.grad(y, (x, weight), dy) for y in (fast, naive))
    for found, expected in zip(*gradients_of, strict=True):
        torch.testing.assert_close(found, expected, **close)
    assert found.is_contiguous()  # the weight's gradient
    assert amx or fast.is_contiguous()  # as columns only where these are faster


@grid(outputs=[8, 24], dtype=[torch.float32, torch.bfloat16], amx=[False, True])
def test_a_recomputed_product_has_the_layout_that_compilers_are_told(
    outputs: int, dtype: torch.dtype, amx: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "AMX", amx)
    x, weight = torch.randn(5, 3, 16, dtype=dtype), torch.randn(4, outputs, 16, dtype=dtype)
    gates = torch.randn(5, 4, dtype=dtype).softmax(-1)
    torch.library.opcheck(merged_linear, (x, gates, weight, None), test_utils="test_faketensor")


def test_a_recomputed_merge_is_not_kept() -> None:
    module, x = make_experts(4, 16, 24, torch.float32), torch.randn(5, 3, 16)
    gates = torch.randn(5, 4).softmax(-1).requires_grad_()

    def largest_kept(recompute: bool) -> int:
        kept: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            module.by_parameters(x, gates, recompute)
        return max(kept)

    assert largest_kept(False) == 5 * 24 * 16
    assert largest_kept(True) == 4 * 24 * 16  # the experts themselves


def test_a_recomputed_merge_under_autocast() -> None:
    module, x = make_experts(4, 16, 24, torch.float32), torch.randn(5, 3, 16)
    gates = torch.randn(5, 4).softmax(-1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kept, recomputed = (
            outcome(module, partial(module.by_parameters, recompute=r), x, gates) for r in (0, 1)
        )
    assert kept[0].dtype == recomputed[0].dtype == torch.bfloat16
    torch.testing.assert_close(recomputed[0], kept[0], rtol=0.02, atol=0.02)
    for name, gradient in kept[1].items():
        assert recomputed[1][name].dtype == gradient.dtype
        torch.testing.assert_close(recomputed[1][name], gradient, rtol=0.05, atol=0.1)


CHOSEN = ["some", "one expert never", "some tokens by nobody", "nothing", "one token"]


@grid(kind=list(KINDS), chosen=CHOSEN, size=SIZES, dtype=DTYPES)
def test_sparse_experts_equal_their_twin(
    kind: str, chosen: str, size: tuple[int, int], dtype: torch.dtype
) -> None:
    module = make_experts(4, *size, dtype, kind)
    tokens = 1 if chosen == "one token" else 23
    gates = torch.rand(tokens, 4, dtype=dtype) * (torch.rand(tokens, 4) < 0.5)
    if chosen == "one expert never":
        gates[:, 2] = 0
    elif chosen == "some tokens by nobody":
        gates[::3] = 0
    elif chosen == "nothing":
        gates[:] = 0
    elif chosen == "one token":
        gates[:] = torch.tensor([0.0, 0.5, 0.0, 0.25])
    x = torch.randn(tokens, size[0], dtype=dtype)

    chosen_gates = gates > 0
    y = module.by_outputs(x, gates)
    assert not y[~chosen_gates.any(-1)].any()
    assert_twins(
        module, module.by_outputs, lambda x, g: by_outputs_loop(module, x, g * chosen_gates), x, gates
    )


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_experts_under_autocast(kind: str) -> None:
    module, x = make_experts(4, 16, 24, torch.float32, kind), torch.randn(23, 16)
    gates = torch.rand(23, 4) * (torch.rand(23, 4) < 0.5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module.by_outputs(x, gates)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), by_outputs_loop(module, x, gates), rtol=0.05, atol=0.05)
    y.float().sum().backward()
    assert all(w.grad.dtype == torch.float32 and torch.isfinite(w.grad).all() for w in module.parameters())


@pytest.mark.parametrize(("kind", "node"), [(kind, node) for kind in KINDS for node in NODES[kind]])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_experts_continue_from_what_is_known(kind: str, node: str, dtype: torch.dtype) -> None:
    module, x = make_experts(4, 16, 24, dtype, kind), torch.randn(5, 16, dtype=dtype)
    gates = torch.rand(5, 4, dtype=dtype) * (torch.rand(5, 4) < 0.7)
    known = module.activations(x, node)
    for expert in range(4):  # one by one, from the weights of each
        weights = {name: weight[expert] for name, weight in module.stacked().items()}
        alone = module.node(node, x, weights, torch.nn.functional.linear)
        torch.testing.assert_close(known[:, expert], alone, **CLOSE[dtype])
    expected = by_outputs_loop(module, x, gates)
    torch.testing.assert_close(module.by_outputs(x, gates, {node: known}), expected, **CLOSE[dtype])
    assert not torch.allclose(module.by_outputs(x, gates, {node: 2 * known}), expected, rtol=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_flow_through_what_is_known(kind: str) -> None:
    module = make_experts(4, 16, 24, torch.float64, kind)
    x, gates = torch.randn(7, 16, dtype=torch.float64), torch.rand(7, 4, dtype=torch.float64)
    for node in NODES[kind]:
        assert_twins(
            module,
            lambda x, g, node=node: module.by_outputs(x, g, {node: module.activations(x, node)}),
            lambda x, g: by_outputs_loop(module, x, g),
            x,
            gates,
        )
