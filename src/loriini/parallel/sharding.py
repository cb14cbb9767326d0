"""A model spread over processes, and the ways in and out of it: whole tensors cut up, and put together.

Everything is sharded by FSDP2 layer by layer over (replicate, data). With expert-wise parallelism each expert
is first sliced by its width over `experts`, and its slices are sharded over (replicate, shard).
"""

import warnings
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from loriini.hardware import autocast_dtype, pick_device
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.experts import Experts
from loriini.parallel.expertwise import ExpertWise, slice_experts
from loriini.parallel.mesh import Parallel

Expand = Callable[[str, Tensor, Tensor], Tensor]
"""Takes a dense tensor's name, the tensor, and the mixture's parameter; returns the tensor in its shape."""

EXPERT_METHODS = ("by_parameters", "by_outputs", "activations")
"""What a mixture calls of its experts; FSDP has to gather their parameters before."""


def build(config: LoriiniConfig, parallel: Parallel, precision: str) -> LoriiniForCausalLM:
    """A freshly initialised model on the training device, spread over the processes where there are several.

    The first process draws the values for all, so that they are those of one process alone.
    """
    source = LoriiniForCausalLM(config) if parallel.first else None
    if parallel.mesh is None:
        assert source is not None
        return source.to(pick_device()).train()
    model = shard_model(config, parallel, precision)
    scatter(model, parallel, source)
    return model


def shard_model(config: LoriiniConfig, parallel: Parallel, precision: str) -> LoriiniForCausalLM:
    """A model of `config` spread over the processes of `parallel`; its values are whatever memory held."""
    with torch.device("meta"):
        model = LoriiniForCausalLM(config)
    if parallel.experts > 1:
        for mixture in model.model.mixtures:
            slice_experts(mixture.experts, parallel.group("experts"))
    shard_(model, parallel, precision)
    return model.to_empty(device=pick_device()).train()


def shard_(model: LoriiniForCausalLM, parallel: Parallel, precision: str) -> None:
    """Apply FSDP2 to every layer and to what is left.

    Gradients are summed over processes, so that every process's loss must count 1/world_size: slices of
    experts are reduced over fewer processes than the rest, but are of the same mean.

    On a GPU layers compute on bfloat16 copies where `precision` asks for it, which halves what is gathered;
    master weights and reductions are float32, and so are the residual stream, the embeddings and the head, as
    in one process.
    """
    policy = MixedPrecisionPolicy(
        param_dtype=autocast_dtype(precision) if pick_device().type == "cuda" else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    # Decisions are views, and nobody changes them in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
    of_experts, of_rest = parallel.fsdp_meshes
    for layer, mixture in zip(model.model.layers, model.model.mixtures, strict=True):
        place = expert_placement(mixture.experts, of_experts if parallel.experts > 1 else of_rest)
        if parallel.experts > 1:
            fully_shard(mixture.experts, mesh=of_experts, mp_policy=policy, shard_placement_fn=place)
            for name in EXPERT_METHODS:
                register_fsdp_forward_method(mixture.experts, name)
        fully_shard(layer, mesh=of_rest, mp_policy=policy, shard_placement_fn=place)
    fully_shard(model, mesh=of_rest, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(1.0)


def expert_placement(experts: Experts, mesh: DeviceMesh) -> Callable[[nn.Parameter], Shard | None]:
    """Along which dimension a layer's parameters are sharded: experts along one that divides evenly.

    Their first dimension, the number of experts, is often smaller than the number of processes.
    """
    size = mesh.size(-1)
    width_dims = {getattr(experts, name): dim for name, dim in experts.width_dims.items()}

    def place(parameter: nn.Parameter) -> Shard | None:
        if parameter not in ours:
            return None
        dims = [d for d, n in enumerate(parameter.shape) if n % size == 0 and d != width_dims.get(parameter)]
        return Shard(dims[0]) if dims else None

    ours = set(experts.parameters())
    return place


def whole_view(model: nn.Module, parallel: Parallel) -> Callable[[str, Tensor], Tensor]:
    """A function (name, local or sharded tensor) → what the tensor is a part of, sharing its memory.

    FSDP's DTensors know nothing of the slices of experts; here they lie in the mesh of all processes.
    """
    if parallel.experts == 1:
        return lambda name, tensor: tensor
    mesh = parallel.mesh
    assert mesh is not None
    dims = dict(sliced(model))

    def view(name: str, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor) or (tensor.device_mesh.mesh_dim_names or ())[-1:] != ("shard",):
            return tensor
        dim = dims.get(name)
        placements: list[Placement] = [Replicate(), tensor.placements[-1], Shard(dim) if dim else Replicate()]
        sizes = list(tensor.shape)
        if dim:
            sizes[dim] *= parallel.experts
        strides = torch.empty(sizes, device="meta").stride()
        return DTensor.from_local(
            tensor.to_local(), mesh, placements, run_check=False, shape=torch.Size(sizes), stride=strides
        )

    return view


def sliced(model: nn.Module) -> Iterator[tuple[str, int]]:
    """The parameters of which each process holds a slice of the width, with its dimension."""
    for prefix, module in model.named_modules():
        if isinstance(module, ExpertWise):
            for name, dim in module.width_dims.items():
                yield f"{prefix}.{name}", dim


def put(target: Tensor, value: Tensor) -> None:
    """Copy this process's part of a whole tensor into `target`, a `whole_view` or a plain tensor."""
    if not isinstance(target, DTensor):
        target.copy_(value)
        return
    mesh = target.device_mesh
    for i, placement in enumerate(target.placements):
        if isinstance(placement, Shard):
            parts, place = value.chunk(mesh.size(i), placement.dim), mesh.get_local_rank(i)
            value = parts[place] if place < len(parts) else value.narrow(placement.dim, 0, 0)
    target.to_local().copy_(value)


def whole(tensor: Tensor) -> Tensor:
    """A whole tensor of a `whole_view`; every process must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def scatter(model: LoriiniForCausalLM, parallel: Parallel, source: nn.Module | None) -> None:
    """Give a sharded model the values, buffers included, of the first process's `source`."""
    values = {} if source is None else {**dict(source.named_buffers()), **source.state_dict()}
    targets = {**dict(model.named_buffers()), **model.state_dict()}
    view = whole_view(model, parallel)
    for name, tensor in targets.items():
        target = view(name, tensor)
        value = torch.empty(target.shape, dtype=target.dtype, device=target.device)
        if parallel.first:
            value.copy_(values[name])
        dist.broadcast(value, src=0)
        put(target, value)


def expand_as(name: str, tensor: Tensor, parameter: Tensor) -> Tensor:
    """The dense model's tensor, once for every expert of the mixture's parameter."""
    return tensor.expand_as(parameter).clone()


def expander(dense: nn.Module, mixture: nn.Module, parallel: Parallel) -> Expand:
    """`optimizer.expand_as` for tensors of sharded models, through one whole tensor at a time."""
    if parallel.mesh is None:
        return expand_as
    of_dense, of_mixture = whole_view(dense, parallel), whole_view(mixture, parallel)

    def expand(name: str, tensor: Tensor, parameter: Tensor) -> Tensor:
        expanded = torch.empty_like(parameter)
        target = of_mixture(name, expanded)
        put(target, whole(of_dense(name, tensor)).expand(target.shape))
        return expanded

    return expand


def gather(model: LoriiniForCausalLM, parallel: Parallel) -> LoriiniForCausalLM | None:
    """The whole model on the first process's CPU, None on the others; every process must ask for it.

    Tensors travel one by one, and no random number is used up. A process alone gets its model itself.
    """
    if parallel.mesh is None:
        return model
    view = whole_view(model, parallel)
    values = {}
    for name, tensor in model.state_dict().items():
        value = whole(view(name, tensor)).cpu()
        if parallel.first:
            values[name] = value
    if not parallel.first:
        return None
    with torch.random.fork_rng(devices=[]):
        together = LoriiniForCausalLM(model.config)
    together.load_state_dict(values)
    return together


def clip_gradients(model: nn.Module, limit: float, parallel: Parallel) -> Tensor:
    """Scale all gradients so that their norm is at most `limit`; returns the norm before."""
    parameters = [p for p in model.parameters() if p.grad is not None]
    if parallel.mesh is None:
        return torch.nn.utils.clip_grad_norm_(parameters, limit)
    reduce_in_group(model, parallel)
    norm = gradient_norm(model, parallel)
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    for parameter in parameters:
        local(parameter.grad).mul_(scale)
    return norm


def reduce_in_group(model: nn.Module, parallel: Parallel) -> None:
    """Sum the gradients of expert parameters that have no width: each process saw its slices' part of it."""
    for parameter in unsliced(model):
        if parameter.grad is not None:
            dist.all_reduce(local(parameter.grad), group=parallel.group("experts"))


def unsliced(model: nn.Module) -> list[nn.Parameter]:
    """Expert parameters that every process of an expert group holds alike."""
    modules = [module for module in model.modules() if isinstance(module, ExpertWise)]
    return [p for m in modules for name, p in m.named_parameters() if name not in m.width_dims]


def gradient_norm(model: nn.Module, parallel: Parallel) -> Tensor:
    """The norm of all gradients, each counted once; scalar, the same in every process."""
    repeated = set(unsliced(model))
    squares = [
        local(p.grad).square().sum() / (parallel.experts if p in repeated else 1)
        for p in model.parameters()
        if p.grad is not None
    ]
    total = torch.stack(squares).sum()
    dist.all_reduce(total, group=parallel.group("data"))
    return total.sqrt()


def local(tensor: Tensor | None) -> Tensor:
    """This process's part of a tensor."""
    assert tensor is not None
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
