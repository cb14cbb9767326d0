"""A model sharded over processes, and whole tensors turned into shards and back.

FSDP2 shards every layer over (replicate, data). Experts that are split over a group are first split over
`experts`, along their width or as whole experts; FSDP then shards these parts over (replicate, shard).
"""

import warnings
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from loriini.common.hardware import Precision, autocast_dtype, pick_device
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.experts.stacked import Experts
from loriini.model.mixture import Mixture
from loriini.parallel.distributed_experts import DistributedExperts, split_kind
from loriini.parallel.expertwise import SlicedExperts
from loriini.parallel.mesh import Parallel
from loriini.parallel.whole_experts import WholeExperts


def build_model(
    config: LoriiniConfig,
    parallel: Parallel,
    precision: Precision,
    make: Callable[[LoriiniConfig], LoriiniForCausalLM] = LoriiniForCausalLM,
    leave_out: Container[str] = (),
) -> LoriiniForCausalLM:
    """A new model on the training device, sharded if there are several processes.

    Rank 0 builds the model with `make` and broadcasts its tensors, except those named in `leave_out`, which
    stay uninitialised in a sharded model.
    """
    source = make(config) if parallel.first else None
    if parallel.mesh is None:
        assert source is not None
        return source.to(pick_device()).train()
    model = shard_model(config, parallel, precision)
    broadcast_weights(model, parallel, source, leave_out)
    return model


def shard_model(config: LoriiniConfig, parallel: Parallel, precision: Precision) -> LoriiniForCausalLM:
    """A model of `config`, sharded over the processes of `parallel`, with uninitialised weights."""
    with torch.device("meta"):
        model = LoriiniForCausalLM(config)
    for mixture in model.model.mixtures:
        mixture.experts = split_experts(mixture.experts, parallel)
        mixture.experts_are_local = not isinstance(mixture.experts, DistributedExperts)
    apply_fsdp(model, parallel, precision)
    return model.to_empty(device=pick_device()).train()


def split_experts(experts: Experts, parallel: Parallel) -> Experts:
    """This process's part of a layer's experts, which may be on the meta device.

    If processes hold whole experts, a dense model's only expert is not split.
    """
    whole = parallel.share_experts == "whole"
    if parallel.experts == 1 or (whole and experts.num_experts == 1):
        return experts
    assert parallel.mesh is not None
    way = WholeExperts if whole else SlicedExperts
    kind = split_kind(way, type(experts))  # type: ignore[arg-type]  # a class is as hashable as any
    return kind(experts, parallel.mesh["experts"])


def apply_fsdp(model: LoriiniForCausalLM, parallel: Parallel, precision: Precision) -> None:
    """Shard every layer, and then the rest of the model, with FSDP2.

    Gradients are summed over processes, so every process's loss must be scaled by 1/world_size: experts split
    over a group are reduced over fewer processes than the rest, but are part of the same mean.

    On a GPU layers compute on bfloat16 copies if `precision` asks for it, which halves the bytes gathered.
    Master weights, reductions, the residual stream, routers, the embeddings and the head stay float32.
    """
    dtype = layer_dtype(precision)
    policy = MixedPrecisionPolicy(dtype, torch.float32, cast_forward_inputs=False)
    exact = replace(policy, param_dtype=None)
    # Routing decisions are views, and nothing changes them in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
    expert_mesh, mesh = parallel.fsdp_meshes
    for layer, mixture in zip(model.model.layers, model.model.mixtures, strict=True):
        split = isinstance(mixture.experts, DistributedExperts)
        place = expert_placement(mixture.experts, expert_mesh if split else mesh)
        if split:
            fully_shard(mixture.experts, mesh=expert_mesh, mp_policy=policy, shard_placement_fn=place)
            if model.config.scored_by_norm:
                keep_gathered(mixture)
        if dtype is not None and (scorer := scorer_with_weights(mixture)):
            fully_shard(scorer, mesh=mesh, mp_policy=exact)
        fully_shard(layer, mesh=mesh, mp_policy=policy, shard_placement_fn=place)
    fully_shard(model, mesh=mesh, mp_policy=exact)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(1.0)


def keep_gathered(mixture: Mixture) -> None:
    """Gather split experts once for both calls of a forward pass: to score themselves, then to compute."""
    experts: Any = mixture.experts
    experts.set_reshard_after_forward(False)
    mixture.register_forward_hook(lambda *_: experts.reshard())


def layer_dtype(precision: Precision) -> torch.dtype | None:
    """The dtype of the copies of weights that layers compute on; None: they compute on the weights."""
    return autocast_dtype(precision) if pick_device().type == "cuda" else None


def scorer_with_weights(mixture: Mixture) -> nn.Module | None:
    """The scorer of a layer's router, to shard by itself; None if it has no parameters.

    FSDP hooks the tensors that a module returns: it finds a scorer's, but not those in a router's `Routing`.
    """
    scorer = None if mixture.router is None else mixture.router.scorer
    return scorer if scorer is not None and list(scorer.parameters()) else None


def expert_placement(experts: Experts, mesh: DeviceMesh) -> Callable[[nn.Parameter], Shard | None]:
    """A function from a parameter to where FSDP shards it: experts along a dimension that divides evenly.

    Their first dimension, the number of experts, is often smaller than the number of processes. A dimension
    along which they are already split over a group is not used again. None: FSDP's default, the first.
    """
    size, parameters = mesh.size(-1), set(experts.parameters())

    def place(parameter: nn.Parameter) -> Shard | None:
        if parameter not in parameters:
            return None
        placements = parameter.placements if isinstance(parameter, DTensor) else ()
        taken = {placement.dim for placement in placements if isinstance(placement, Shard)}
        dim = divided_dim(parameter.shape, size, taken)
        return None if dim is None else Shard(dim)

    return place


def divided_dim(shape: Iterable[int], size: int, taken: Container[int | None]) -> int | None:
    """The first dimension, not in `taken`, that `size` processes divide evenly; None if there is none."""
    dims = (dim for dim, n in enumerate(shape) if n % size == 0 and dim not in taken)
    return next(dims, None)


def full_tensor(tensor: Tensor) -> Tensor:
    """The whole of a sharded tensor; every process must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_part(tensor: Tensor | None) -> Tensor:
    """This process's part of a tensor."""
    assert tensor is not None
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def copy_part(target: Tensor, whole: Tensor) -> None:
    """Copy this process's part of a whole tensor, which every process has, into a sharded `target`."""
    if isinstance(target, DTensor):
        whole = distribute_tensor(whole, target.device_mesh, target.placements, src_data_rank=None).to_local()
    local_part(target).copy_(whole)


def expand_into_experts(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A dense model's tensor, repeated for every expert and sharded like the mixture's `parameter`."""
    expanded = torch.empty_like(parameter)
    copy_part(expanded, full_tensor(tensor).expand(parameter.shape))
    return expanded


def broadcast_weights(
    model: LoriiniForCausalLM, parallel: Parallel, source: nn.Module | None, leave_out: Container[str] = ()
) -> None:
    """Give a sharded model the weights and buffers of the first process's `source`, tensor by tensor.

    Tensors named in `leave_out` stay as they are.
    """
    values = {} if source is None else weights_and_buffers(source)
    for name, target in weights_and_buffers(model).items():
        if name in leave_out:
            continue
        value = torch.empty(target.shape, dtype=target.dtype, device=target.device)
        if parallel.first:
            value.copy_(values[name])
        dist.broadcast(value, src=0)
        copy_part(target, value)


def weights_and_buffers(model: nn.Module) -> dict[str, Tensor]:
    """A model's tensors by name, including buffers that its state dict leaves out."""
    return {**dict(model.named_buffers()), **model.state_dict()}


def gather_model(model: LoriiniForCausalLM, parallel: Parallel) -> LoriiniForCausalLM | None:
    """The whole model on the first process's CPU, None on the others; every process must call it.

    Tensors are gathered one by one, and no random number is drawn. A single process gets its model itself.
    """
    if parallel.mesh is None:
        return model
    gathered = empty_model(model.config) if parallel.first else None
    targets = {} if gathered is None else weights_and_buffers(gathered)
    for name, tensor in weights_and_buffers(model).items():
        value = full_tensor(tensor)
        if parallel.first:
            targets[name].copy_(value)
    return gathered


def empty_model(config: LoriiniConfig) -> LoriiniForCausalLM:
    """A model on the CPU with uninitialised weights and buffers."""
    with torch.device("meta"):
        model = LoriiniForCausalLM(config)
    model.to_empty(device="cpu").tie_weights()
    return model


def reduce_gradients(model: nn.Module, reduce: bool) -> None:
    """Set whether the next backward pass reduces gradients over processes, or accumulates them locally."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(reduce)


def gradient_norm(gradients: list[Tensor]) -> Tensor:
    """The norm of a model's gradients, scalar; over all processes' parts if they are sharded."""
    if not any(isinstance(gradient, DTensor) for gradient in gradients):
        return torch.nn.utils.get_total_norm(gradients)
    parts: defaultdict[int, list[Tensor]] = defaultdict(list)
    for gradient in gradients:
        parts[copies(gradient)].append(local_part(gradient))
    squares = [torch.nn.utils.get_total_norm(local).square() / held for held, local in parts.items()]
    total = torch.stack(squares).sum()
    dist.all_reduce(total)
    return total.sqrt()


def copies(tensor: Tensor) -> int:
    """How many processes hold each element of a sharded tensor."""
    assert isinstance(tensor, DTensor)
    mesh = tensor.device_mesh
    held = [mesh.size(i) for i, placement in enumerate(tensor.placements) if placement.is_replicate()]
    return torch.Size(held).numel()
