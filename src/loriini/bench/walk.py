"""Every operation of a training step, with the bytes and FLOPs of each, counted on fake tensors.

Nothing is computed: the package's own model, clipping and optimizer run on tensors that have shapes and no
contents. At a memory bandwidth and a matrix peak every operation has a lower bound, the longer of its traffic
and its arithmetic, and so has the step.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from copy import copy
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from loriini.bench.operations import GROUPS, Machine, Operation, fused
from loriini.estimate.activations import KnownShapes
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.low_precision import experts_cast_once
from loriini.train.optimizer import OptimizerConfig, make_optimizer, take_step

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "_grouped_mm")
FILLS = ("fill_", "zero_", "zeros_like")
"""Operations that write memory without reading any."""
ALLOCATES = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "lift_fresh")


def walk_step(
    config: LoriiniConfig,
    instances: int,
    length: int,
    micro_batches: int,
    dtype: torch.dtype = torch.bfloat16,
    compiled: bool = False,
    casts_once: bool = True,
    one_pass: bool = False,
) -> list[tuple[Operation, int]]:
    """Each operation of a step with how often the step runs it.

    A step has `micro_batches` of (instances, length) tokens, clipping and AdamW. Layers are alike: models of
    one and of two layers are walked, and what the second adds stands for each.

    - `compiled`: as `fused`.
    - `casts_once`: experts are cast once a step (`experts_cast_once`), else by autocast wherever used.
    - `one_pass`: both gradients of a merge are one kernel's (`merge_kernels`), as on a GPU with Triton.

    Operations are distinguished by shapes: a vocabulary of as many rows as there are tokens, or pairs of a
    token and an expert, counts with a row or two more.
    """
    config = _with_distinct_vocabulary(config, instances * length)
    one, two = (_walk(config, n, instances, length, dtype, casts_once, one_pass) for n in (1, 2))
    if compiled:
        one, two = fused(one), fused(two)
    layers = config.num_hidden_layers
    times = {"copies": 1, "forward": micro_batches, "backward": micro_batches, "optimizer": 1}
    return [(op, times[op.phase] * (2 - layers)) for op in one] + [
        (op, times[op.phase] * (layers - 1)) for op in two
    ]


def seconds_by_group(step: Iterable[tuple[Operation, int]], machine: Machine) -> dict[str, float]:
    """The lower bound of a step in seconds, by group."""
    totals = dict.fromkeys(GROUPS, 0.0)
    for operation, times in step:
        totals[operation.group] += times * machine.seconds(operation)
    return totals


def _with_distinct_vocabulary(config: LoriiniConfig, tokens: int) -> LoriiniConfig:
    distinct = copy(config)
    while distinct.vocab_size in (tokens, round(tokens * config.experts_per_token)):
        distinct.vocab_size += 1
    return distinct


def _walk(
    config: LoriiniConfig,
    layers: int,
    instances: int,
    length: int,
    dtype: torch.dtype,
    casts_once: bool,
    one_pass: bool,
) -> list[Operation]:
    """The operations of a later micro-batch of a shallow model, and those once a step."""
    shallow = copy(config)
    shallow.num_hidden_layers = layers
    cast = torch.autocast("cpu", dtype) if dtype != torch.float32 else nullcontext()
    walk = Walk(shallow, one_pass)
    with FakeTensorMode(), KnownShapes(), ExitStack() as step:
        model = LoriiniForCausalLM(shallow).train()
        optimizer = make_optimizer(model, OptimizerConfig())
        ids = torch.zeros(instances, length, dtype=torch.long)
        with walk:
            step.enter_context(experts_cast_once(model, dtype if casts_once else None, one_pass))
        for recorded in (nullcontext(), walk):  # the first makes gradients, the second adds to them
            with recorded:
                walk.phase = "forward"
                with cast:
                    loss = model(ids, shift_labels=ids, skip_logits=True, use_cache=False).loss
                walk.phase = "backward"
                loss.backward()
        step.close()
        optimizer.step()  # makes its state
        with walk:
            walk.phase = "optimizer"
            take_step(model, optimizer, 1.0, loss.detach())
    return walk.operations


class Walk(TorchDispatchMode):
    """Records every operation that moves floating-point tensors; views and masks are left out."""

    def __init__(self, config: LoriiniConfig, one_pass: bool) -> None:
        super().__init__()
        self.config = config
        self.expanded = EXPANDED if one_pass else {**EXPANDED, **WITHOUT_KERNEL}
        self.phase = "copies"
        self.operations: list[Operation] = []
        self._alive: list[torch.UntypedStorage] = []  # so that no address is used twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.name() in self.expanded:
            with self:
                return self.expanded[func.name()](*args)
        out = func(*args, **kwargs)
        self._record(func, args, kwargs, out)
        return out

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        name = func.name().split("::")[-1].split(".")[0]
        sources = args[1:] if name == "copy_" else args
        inputs = list(_tensors((sources, {k: v for k, v in kwargs.items() if k != "out"})))
        outputs = list(_tensors(out))
        read, written = self._bytes(inputs), self._bytes(outputs)
        if name in ALLOCATES or name == "device" or not (outputs or func._schema.is_mutable):
            return
        if func._schema.is_mutable:
            written |= self._bytes(_tensors(_mutated(func, args)))
        if name in FILLS:
            read = {}
        elif not func._schema.is_mutable and written.keys() <= read.keys():
            return  # a view
        group = self._group(name, inputs, outputs)
        flops = _flops(func, name, args, kwargs, out)
        self.operations.append(Operation(name, group, self.phase, flops, read, written))

    def _bytes(self, tensors: Iterable[Tensor]) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._alive.append(storage)
            distinct = prod(n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
            size = min(distinct * tensor.element_size(), storage.nbytes())
            sizes[storage._cdata] = max(sizes.get(storage._cdata, 0), size)
        return sizes

    def _group(self, name: str, inputs: list[Tensor], outputs: list[Tensor]) -> str:
        config, dims = self.config, {n for t in (*inputs, *outputs) for n in t.shape}
        if self.phase == "optimizer":
            return "optimizer"
        if self.phase == "copies":
            return "casts" if name == "_to_copy" else "gradient sums"
        if "scaled_dot_product" in name:
            return "attention"
        if config.vocab_size in dims and name != "embedding":
            return "gradient sums" if name == "add_" else "loss"
        if "merg" in name or (name in PRODUCTS and config.merges and _merges(dims, config)):
            return "merge" if self.phase == "forward" else "merge backward"
        if name in PRODUCTS and (config.expert_width in dims or name == "_grouped_mm"):
            return "FFN"
        if name in PRODUCTS and (not config.is_mixture or config.num_experts not in dims):
            return "attention"
        if name == "add_":
            return "gradient sums"
        return "casts" if name in ("_to_copy", "copy_") else "elementwise"


def _merge(gates_NE: Tensor, weight_EP: Tensor, main_grad_EP: Tensor | None) -> Tensor:
    """The operations of `model.kernels.merge_kernels.merge`."""
    return torch.mm(gates_NE, weight_EP)


def _merged_linear(
    x_NSD: Tensor, gates_NE: Tensor, weight_EOD: Tensor, main_grad_EP: Tensor | None
) -> Tensor:
    """The operations of `model.kernels.products.merged_linear`."""
    merged_NP = torch.mm(gates_NE, weight_EOD.to(gates_NE.dtype).flatten(1))
    return torch.bmm(x_NSD, merged_NP.unflatten(-1, weight_EOD.shape[1:]).mT)


def _merge_gradients(dmerged_NP: Tensor, gates_NE: Tensor, weight_EP: Tensor) -> tuple[Tensor, Tensor]:
    """The operations of `model.kernels.merge_kernels.merge_gradients_twin`."""
    return torch.mm(dmerged_NP, weight_EP.T), torch.mm(gates_NE.T, dmerged_NP)


def _rounded_groups(x_PD: Tensor, weight_EOD: Tensor, ends_E: Tensor) -> Tensor:
    """As if all rows belonged to one expert."""
    return torch.mm(x_PD, weight_EOD[0].T)


def _group_gradients(dy_PO: Tensor, x_PD: Tensor, ends_E: Tensor) -> Tensor:
    return torch.mm(dy_PO.T, x_PD).expand(len(ends_E), -1, -1).contiguous()


EXPANDED: Mapping[str, Callable[..., Any]] = {
    "loriini::merge": _merge,
    "loriini::merged_linear": _merged_linear,
    "loriini::rounded_groups": _rounded_groups,
    "loriini::group_gradients": _group_gradients,
}
"""Our operators, by the operations in them."""
WITHOUT_KERNEL: Mapping[str, Callable[..., Any]] = {"loriini::merge_gradients": _merge_gradients}
"""Our operators that are one operation where there is a kernel, by the operations in them without one."""


def _mutated(func: Any, args: Any) -> list[Any]:
    """The arguments that an operation writes."""
    infos = (argument.alias_info for argument in func._schema.arguments)
    return [value for value, info in zip(args, infos, strict=False) if info is not None and info.is_write]


def _merges(dims: set[int], config: LoriiniConfig) -> bool:
    return config.num_experts in dims and max(dims) >= config.hidden_size * config.intermediate_size


def _tensors(values: Any) -> Iterator[Tensor]:
    return (t for t in tree_leaves(values) if isinstance(t, Tensor) and t.is_floating_point())


def _flops(func: Any, name: str, args: Any, kwargs: Any, out: Any) -> float:
    if "scaled_dot_product" in name:  # causal: half of all pairs; five products backward, two forward
        query = next(t for t in _tensors(args) if t.dim() == 4)
        products = 5 if "backward" in name else 2
        return float(products * query.numel() * query.shape[-2])
    if "merge_gradients" in name:  # two products of N·E·P
        dmerged_NP, gates_NE = args[:2]
        return float(4 * gates_NE.numel() * dmerged_NP.shape[1])
    count = flop_registry.get(func._overloadpacket)
    return float(count(*args, **kwargs, out_val=out)) if count else 0.0
