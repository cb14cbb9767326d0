"""The merge of experts' weights as operators, and a Triton kernel for both its gradients in one pass.

The merged weights' gradient dW̄ (N, X) is the largest tensor of a layer's backward pass. The gradients of the
gates, dW̄ Wᵀ, and of the experts, Gᵀ dW̄, read it once each as matrix products; the kernel reads it once for
both, and adds the experts' to a float32 gradient (Megatron's `main_grad`) if it is given one. It runs on a
GPU where Triton can be imported, in 16-bit formats and for up to 64 experts. Its speed has not been measured:
tests run it in Triton's interpreter and compile it for sm_80 and sm_90. Registers a thread (Triton 3.7):
sm_90 151–187 up to 16 experts, else 255 with up to 40 bytes spilled; sm_80 always 255, 110–250 bytes spilled.

Axes: N units, E experts, X parameters of a matrix (output width · input width), flattened.
"""

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    from triton import language as tl
except ImportError:  # without Triton the matrix products run
    triton = None

MOST_EXPERTS = 64
"""More experts take more registers than a thread has."""
KERNEL_DTYPES = (torch.bfloat16, torch.float16)
"""Products of float32 do not run on tensor cores; the kernel would hold its blocks in local memory."""
PROGRAMS = 2
"""Programs per multiprocessor: 65,536 registers hold two of 128 threads at 255 a thread."""


def runs_on(device: torch.device, dtype: torch.dtype, experts: int) -> bool:
    """Whether the kernel runs on this device, in this dtype and for this number of experts."""
    on_gpu = triton is not None and device.type == "cuda"
    return on_gpu and dtype in KERNEL_DTYPES and experts <= MOST_EXPERTS and starts_on(device)


def adds_gradient(weight_E: Tensor, dtype: torch.dtype) -> bool:
    """Whether merging these weights in `dtype` should add to their `main_grad`: where the kernel runs."""
    return runs_on(weight_E.device, dtype, len(weight_E))


@cache
def starts_on(device: torch.device) -> bool:
    """Whether kernels start on a GPU: Triton compiles their launcher, with a C compiler and Python.h."""
    try:
        dmerged_NX = torch.zeros(1, 128, dtype=KERNEL_DTYPES[0], device=device)
        launch(dmerged_NX, dmerged_NX[:, :1], dmerged_NX, torch.empty_like(dmerged_NX), add=False)
    except Exception as error:  # its class depends on what is missing
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        warnings.warn(f"Triton's kernels do not start ({reason}); matrix products run instead", stacklevel=2)
        return False
    return True


@torch.library.custom_op("loriini::merge", mutates_args=())
def merge(gates_NE: Tensor, weight_EX: Tensor, main_grad_EX: Tensor | None) -> Tensor:
    """Σ_i e_i W_i of each unit; (N, X).

    In the backward pass the experts' gradient is added to `main_grad_EX` (float32, detached) if it is given,
    else returned.
    """
    return gates_NE @ weight_EX


@merge.register_fake
def _(gates_NE: Tensor, weight_EX: Tensor, main_grad_EX: Tensor | None) -> Tensor:
    return gates_NE.new_empty(gates_NE.shape[0], weight_EX.shape[1])  # `len` would be a constant of the graph


def save_inputs(ctx: Any, inputs: tuple[Tensor | None, ...], output: Tensor) -> None:
    """Keep an operator's inputs for its backward pass."""
    ctx.save_for_backward(*inputs)


def _merge_backward(ctx: Any, dmerged_NX: Tensor) -> tuple[Tensor, Tensor | None, None]:
    return *gradients(dmerged_NX, *ctx.saved_tensors), None


merge.register_autograd(_merge_backward, setup_context=save_inputs)


def gradients(
    dmerged_NX: Tensor, gates_NE: Tensor, weight_EX: Tensor, main_grad_EX: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """The gradients of gates (N, E) and experts (E, X); None for the latter if added to `main_grad_EX`."""
    if main_grad_EX is not None:
        return merge_gradients(dmerged_NX, gates_NE, weight_EX, main_grad_EX, add=True), None
    dweight_EX = torch.empty_like(weight_EX)
    return merge_gradients(dmerged_NX, gates_NE, weight_EX, dweight_EX, add=False), dweight_EX


@torch.library.custom_op("loriini::merge_gradients", mutates_args={"out_EX"})
def merge_gradients(
    dmerged_NX: Tensor, gates_NE: Tensor, weight_EX: Tensor, out_EX: Tensor, add: bool
) -> Tensor:
    """The gradient of the gates; that of the experts is written to `out_EX`, or added to it with `add`."""
    on_gpu = runs_on(dmerged_NX.device, dmerged_NX.dtype, len(weight_EX))
    compute = launch if on_gpu else merge_gradients_twin
    return compute(dmerged_NX, gates_NE, weight_EX, out_EX, add).to(gates_NE.dtype)


@merge_gradients.register_fake
def _(dmerged_NX: Tensor, gates_NE: Tensor, weight_EX: Tensor, out_EX: Tensor, add: bool) -> Tensor:
    return torch.empty_like(gates_NE)


def merge_gradients_twin(
    dmerged_NX: Tensor, gates_NE: Tensor, weight_EX: Tensor, out_EX: Tensor, add: bool
) -> Tensor:
    """The naive twin of the kernel: one matrix product for each gradient."""
    gates_EN = gates_NE.T.contiguous()  # makes its product 1.2 to 2.6 times as fast in bfloat16 on a CPU
    if add:
        out_EX += gates_EN @ dmerged_NX
    else:
        torch.mm(gates_EN, dmerged_NX, out=out_EX)
    return dmerged_NX @ weight_EX.T


def launch(
    dmerged_NX: Tensor,
    gates_NE: Tensor,
    weight_EX: Tensor,
    out_EX: Tensor,
    add: bool,
    programs: int | None = None,
) -> Tensor:
    """Run the kernel: write or add the experts' gradient to `out_EX`; returns the gates' (N, E) in float32.

    `out_EX` must be contiguous, as results in a copy would be lost, and float32 if it is added to.
    Each of the `programs` sums the gates' gradient over its own columns in its own part of memory, so that
    the result does not depend on their order.
    """
    (N, X), E = dmerged_NX.shape, len(weight_EX)
    assert out_EX.is_contiguous()
    sizes = block_sizes(E)
    if programs is None:
        processors = torch.cuda.get_device_properties(dmerged_NX.device).multi_processor_count
        programs = min(triton.cdiv(X, sizes["BLOCK_X"]), PROGRAMS * processors)
    parts_KNE = torch.zeros(programs, N, E, dtype=torch.float32, device=dmerged_NX.device)
    merge_gradients_kernel[(programs,)](
        dmerged_NX.contiguous(),
        gates_NE.contiguous(),
        weight_EX.contiguous(),
        out_EX,
        parts_KNE,
        N,
        X,
        E,
        **sizes,
        ADD=add,
        UPCAST=triton.knobs.runtime.interpret,  # the interpreter cannot multiply bfloat16
    )
    return parts_KNE.sum(0)


def block_sizes(experts: int) -> dict[str, int]:
    """The kernel's blocks: units, parameters and experts that a program holds at once."""
    block_E = max(16, triton.next_power_of_2(experts))
    return {"BLOCK_N": 64, "BLOCK_X": 128 if block_E <= 32 else 64, "BLOCK_E": block_E}


if triton is not None:

    @triton.jit
    def merge_gradients_kernel(  # type: ignore[no-untyped-def]
        dmerged_ptr,
        gates_ptr,
        weight_ptr,
        out_ptr,
        parts_ptr,
        N,
        X,
        E,
        BLOCK_N: tl.constexpr,
        BLOCK_X: tl.constexpr,
        BLOCK_E: tl.constexpr,
        ADD: tl.constexpr,
        UPCAST: tl.constexpr,
    ):
        """A program takes all rows of some blocks of columns. Offsets are 64-bit: N·X may exceed 2³¹."""
        program = tl.program_id(0).to(tl.int64)
        e = tl.arange(0, BLOCK_E).to(tl.int64)
        for block in range(tl.program_id(0), tl.cdiv(X, BLOCK_X), tl.num_programs(0)):
            x = tl.full((), block, tl.int64) * BLOCK_X + tl.arange(0, BLOCK_X)
            at_EX = e[:, None] * X + x[None, :]
            in_EX = (e < E)[:, None] & (x < X)[None, :]
            weight_EX = tl.load(weight_ptr + at_EX, mask=in_EX, other=0.0)
            if UPCAST:
                weight_EX = weight_EX.to(tl.float32)
            if ADD:
                dweight_EX = tl.load(out_ptr + at_EX, mask=in_EX, other=0.0)
            else:
                dweight_EX = tl.zeros((BLOCK_E, BLOCK_X), dtype=tl.float32)
            for first in range(0, N, BLOCK_N):
                n = first + tl.arange(0, BLOCK_N).to(tl.int64)
                in_NX = (n < N)[:, None] & (x < X)[None, :]
                in_NE = (n < N)[:, None] & (e < E)[None, :]
                dmerged_NX = tl.load(dmerged_ptr + n[:, None] * X + x[None, :], mask=in_NX, other=0.0)
                gates_NE = tl.load(gates_ptr + n[:, None] * E + e[None, :], mask=in_NE, other=0.0)
                if UPCAST:
                    dmerged_NX, gates_NE = dmerged_NX.to(tl.float32), gates_NE.to(tl.float32)
                dweight_EX = tl.dot(tl.trans(gates_NE), dmerged_NX, dweight_EX, input_precision="ieee")
                dgates_NE = tl.dot(dmerged_NX, tl.trans(weight_EX), input_precision="ieee")
                part_NE = parts_ptr + (program * N + n)[:, None] * E + e[None, :]
                tl.store(part_NE, tl.load(part_NE, mask=in_NE, other=0.0) + dgates_NE, mask=in_NE)
            tl.debug_barrier()  # in the next block other threads of this program may load these parts
            tl.store(out_ptr + at_EX, dweight_EX.to(out_ptr.dtype.element_ty), mask=in_EX)
