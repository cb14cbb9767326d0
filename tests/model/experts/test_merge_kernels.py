"""The merge as an operator and its gradients' kernel against the naive twin; the kernel runs interpreted."""

import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from covering import grid
from loriini.model.experts.affine import WeightAndGrad, affine_by_merging
from loriini.model.kernels import merge_kernels
from loriini.model.kernels.products import merged_weight

INTERPRETED = """
import torch
from loriini.model.kernels import merge_kernels

torch.manual_seed(0)
for dtype, (N, E, P), add in (
    (torch.float32, (5, 3, 301), False),
    (torch.bfloat16, (70, 8, 128), True),
    (torch.bfloat16, (1, 40, 77), False),
    (torch.float32, (1, 40, 77), True),
):
    dmerged, gates, weight = (torch.randn(s).to(dtype) for s in ((N, P), (N, E), (E, P)))
    given = torch.randn(E, P)
    out = given.clone() if add else torch.empty(E, P, dtype=dtype)
    dgates = merge_kernels.launch(dmerged, gates, weight, out, add, programs=2)
    given_float, wanted = (dmerged.float(), gates.float(), weight.float()), given.clone()
    wanted_dgates = merge_kernels.merge_gradients_twin(*given_float, wanted, add)
    close = {"rtol": 0.01, "atol": 0.01} if dtype == torch.bfloat16 and not add else {}
    torch.testing.assert_close(dgates, wanted_dgates, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(out.float(), wanted, **close)
print("equal")
"""


@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="needs Triton")
def test_the_kernel_equals_its_twin_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "ignore", "-c", INTERPRETED]
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=Path(__file__).parent
    )
    if "only 0-dimensional arrays can be converted" in found.stderr:
        pytest.skip("the interpreter of this Triton does not run with this numpy; Triton 3.9 does")
    assert (found.stdout, found.returncode) == ("equal\n", 0), found.stderr


ALIGNED = [["tt.divisibility", 16]]
"""As launches find pointers and numbers, which are then copied in steps."""


@pytest.mark.skipif(
    not importlib.util.find_spec("triton") or not importlib.util.find_spec("triton.backends.nvidia"),
    reason="needs Triton with its backend for NVIDIA",
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("capability", "shared", "experts", "add"), [(80, 163 * 1024, 32, True), (90, 227 * 1024, 64, False)]
)
def test_the_kernel_compiles_for_gpus_that_are_not_here(
    capability: int, shared: int, experts: int, add: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the interpreter does not check: types, shapes of products, the shared memory of a block."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel, blocks = merge_kernels.merge_gradients_kernel, merge_kernels.block_sizes(experts)
    constants = {**blocks, "ADD": add, "UPCAST": False}
    given = [name for name in kernel.arg_names if name not in constants]
    types = {name: "*bf16" if name.endswith("_ptr") else "i32" for name in given}
    types |= {"parts_ptr": "*fp32", "out_ptr": "*fp32" if add else "*bf16"}
    aligned = {(i,): ALIGNED for i, name in enumerate(kernel.arg_names) if name in types}
    types |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, types, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    assert compiled.asm["cubin"]
    assert compiled.metadata.shared <= shared


def test_offsets_in_the_kernel_have_64_bits() -> None:
    """N · P exceeds 2³¹ in a large micro-batch, more than a test can hold."""
    source = Path(merge_kernels.__file__).read_text()
    body = source[source.index("def merge_gradients_kernel") :]
    indices = ("program = ", "e = ", "x = ", "n = ")
    lines = [line.strip() for line in body.splitlines() if line.strip().startswith(indices)]
    assert len(lines) == len(indices)
    assert all("tl.int64" in line for line in lines)


@grid(gates=["trained", "fixed"], main_grad=[False, True], shape=[(3, 5, 7), (8, 4, 6)])
def test_the_operator_has_the_gradients_of_its_definition(
    gates: str, main_grad: bool, shape: tuple[int, int, int]
) -> None:
    E, N, P = shape
    g = torch.randn(N, E, dtype=torch.float64, requires_grad=gates == "trained")
    w, probe = torch.randn(E, P, dtype=torch.float64, requires_grad=True), torch.randn(N, P).double()
    added = torch.ones(E, P, dtype=torch.float64) if main_grad else None
    merged = merge_kernels.merge(g, w, added)
    torch.testing.assert_close(merged, g @ w)
    (merged * probe).sum().backward()
    found, dgates = (added - 1 if main_grad else w.grad), g.grad
    assert (w.grad is None) == main_grad
    w.grad = g.grad = None
    ((g @ w) * probe).sum().backward()
    torch.testing.assert_close(found, w.grad)
    if gates == "trained":
        torch.testing.assert_close(dgates, g.grad)


def test_the_operator_passes_gradcheck_and_opcheck() -> None:
    g, w = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((5, 3), (3, 7)))
    assert torch.autograd.gradcheck(lambda g, w: merge_kernels.merge(g, w, None), (g, w))
    torch.library.opcheck(merge_kernels.merge, (g, w, None))
    arguments = tuple(map(torch.randn, ((5, 7), (5, 3), (3, 7), (3, 7))))
    for add in (False, True):
        torch.library.opcheck(merge_kernels.merge_gradients, (*arguments, add))


def kept(g: Tensor, w: Tensor, main_grad: Tensor | None) -> Tensor:
    """Units times merges that are kept; (N, S, O)."""
    return X_NSD @ merged_weight(g, w, main_grad).mT


def again(g: Tensor, w: Tensor, main_grad: Tensor | None) -> Tensor:
    """The same with merges that the backward pass does again."""
    return affine_by_merging(g)(X_NSD, WeightAndGrad(w, main_grad))


X_NSD = torch.randn(5, 6, 7, generator=torch.Generator().manual_seed(0))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("merging", [kept, again])
def test_the_backward_pass_adds_to_main_grad_compiled_or_not(merging: Callable[..., Tensor]) -> None:
    torch.compiler.reset()
    g, w = torch.randn(5, 3, requires_grad=True), torch.randn(3, 4, 7, requires_grad=True)
    main_grads = [torch.ones(3, 28) for _ in range(2)]
    compiled = torch.compile(merging, backend="aot_eager", fullgraph=True)
    for merge, main_grad in zip((merging, compiled), main_grads, strict=True):
        for _ in range(2):  # two micro-batches
            merge(g, w, main_grad).square().sum().backward()
    assert w.grad is None
    merging(g, w, None).square().sum().backward()
    for main_grad in main_grads:
        torch.testing.assert_close(main_grad, 1 + 2 * w.grad.flatten(1))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_backward_pass_copies_no_main_grad(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the float32 gradients for the kernel, and back, would move more bytes than the kernel."""
    given: list[int] = []

    def launch(dmerged: Tensor, gates: Tensor, weight: Tensor, out: Tensor, add: bool) -> Tensor:
        given.append(out.data_ptr())
        return torch.zeros_like(gates)

    def both(g: Tensor, w: Tensor, of_kept: Tensor, of_again: Tensor) -> Tensor:
        return kept(g, w, of_kept) + again(g, w, of_again)

    monkeypatch.setattr(merge_kernels, "runs_on", lambda *_: True)
    monkeypatch.setattr(merge_kernels, "launch", launch)
    torch.compiler.reset()
    g, w = torch.randn(5, 3, requires_grad=True), torch.randn(3, 4, 7, requires_grad=True)
    main_grads = [torch.ones(3, 28) for _ in range(2)]
    torch.compile(both, fullgraph=True)(g, w, *main_grads).square().sum().backward()
    assert sorted(given) == sorted(main_grad.data_ptr() for main_grad in main_grads)


def test_where_the_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_kernels, "starts_on", lambda _: True)
    low, cuda = torch.bfloat16, torch.device("cuda")
    assert merge_kernels.runs_on(cuda, low, 64)
    for elsewhere in ((cuda, torch.float32, 8), (cuda, low, 65), (torch.device("cpu"), low, 8)):
        assert not merge_kernels.runs_on(*elsewhere)


def test_where_kernels_do_not_start_the_matrix_products_run() -> None:
    """As on a machine without a C compiler, or here without such a GPU; it is said once."""
    device = torch.device("cuda", 7)
    merge_kernels.starts_on.cache_clear()
    with pytest.warns(UserWarning, match="kernels do not start .*; matrix products run instead"):
        assert not merge_kernels.runs_on(device, torch.bfloat16, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not merge_kernels.runs_on(device, torch.bfloat16, 8)
    merge_kernels.starts_on.cache_clear()
