"""The processes of a job: their mesh, and the reductions over all of them.

torchrun starts the processes and gives each its rank. They form a mesh (replicate, shard, experts): each of
the `replicate` groups holds a copy of the model, sharded over shard · experts processes. The experts of a
layer are split along `experts`, by slices of their width or as whole experts; every process has its own data.
Neighbouring ranks belong to one expert group, so that a group stays within a node.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.rendezvous import rendezvous

from loriini.common.checks import Count, CountOrZero, check_fields, refuse_first
from loriini.common.errors import InputError, Unfinished
from loriini.common.hardware import pick_device
from loriini.common.settings import Needs, setting
from loriini.common.signals import Interrupted
from loriini.model import LoriiniConfig

Result = TypeVar("Result")
Item = TypeVar("Item")
ShareExperts = Literal["width", "whole"]


@dataclass(frozen=True)
class ParallelConfig:
    """How processes share a model; a single process holds all of it."""

    shard: CountOrZero = 0
    """Processes that share one copy of parameters, gradients and optimizer state (FSDP, ZeRO-3). 0: all; 1:
    each holds a whole copy; in between: hybrid, for example the GPUs of a node."""
    experts: Count = 1
    """How many of the processes that share a copy share the experts of every layer; 1: not shared."""
    share_experts: ShareExperts = setting(
        "width", needs=Needs("--parallel.experts above 1", lambda run: run.parallel.experts > 1)
    )
    """How `experts` processes share the experts: each holds a slice of every expert's width (Lory section
    6), or some whole experts, to which tokens are sent (all-to-all)."""
    reduce_once: bool = False
    """Reduce gradients over processes once a step instead of after each micro-batch: less communication, but
    every process then holds all gradients in float32."""

    def __post_init__(self) -> None:
        check_fields(self, "parallel.")


@dataclass(frozen=True)
class Parallel:
    """This process's place among all; for a single process every reduction is the identity."""

    rank: int = 0
    world_size: int = 1
    mesh: DeviceMesh | None = None
    """(replicate, shard, experts); None for a single process."""
    share_experts: ShareExperts = "width"
    """How the experts are split over the processes along `experts`."""
    data_mesh: DeviceMesh | None = None
    """The same processes as (replicate, data), over which all parameters but split experts are sharded."""
    checkpoint_group: dist.ProcessGroup | None = None
    """A second group of all processes, for checkpoints written in the background."""

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files and messages."""
        return self.rank == 0

    @property
    def experts(self) -> int:
        """The number of processes that the experts of a layer are split over."""
        return 1 if self.mesh is None else self.mesh["experts"].size()

    @property
    def fsdp_meshes(self) -> tuple[DeviceMesh, DeviceMesh]:
        """The mesh over which FSDP shards split experts, and that for all other parameters."""
        assert self.mesh is not None
        assert self.data_mesh is not None
        if self.mesh["replicate"].size() == 1:
            return self.mesh["shard"], self.data_mesh["data"]
        return self.mesh["replicate", "shard"], self.data_mesh

    def mean(self, x: Tensor) -> Tensor:
        """The mean over all processes, without a gradient."""
        return self.sum(x) / self.world_size if self.mesh else x

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all processes, without a gradient."""
        if self.mesh is None:
            return x
        total = x.detach().clone()
        dist.all_reduce(total)
        return total

    def any(self, here: bool) -> bool:
        """True, in every process, if any process passes True."""
        if self.mesh is None:
            return here
        return bool(self.sum(torch.tensor([float(here)])).item())  # on the CPU, to not wait for the GPU


SINGLE_PROCESS = Parallel()


def check_mesh(
    config: ParallelConfig,
    world_size: int,
    batch_size: int,
    model: LoriiniConfig,
    document_mask: bool = False,
) -> None:
    """Raise InputError for processes, a batch or a model that this mesh does not divide.

    With `document_mask`, processes differ in their number of units longer than a token (documents, or
    segments of documents); processes that share experts need equally many.
    """
    if world_size == 1:
        return
    refuse_first(_mesh_conflicts(config, world_size, batch_size))
    if config.experts > 1:
        refuse_first(_sharing_conflicts(config, model, document_mask))


def _mesh_conflicts(config: ParallelConfig, world_size: int, batch_size: int) -> Iterator[str]:
    """Why the processes, or the batch, cannot be divided as configured."""
    shard, experts = config.shard or world_size, config.experts
    if shard > world_size or world_size % shard != 0:
        yield (
            f"parallel.shard is {config.shard}, but {world_size} processes are not a multiple of it; "
            "start another number, or set it to 0"
        )
    if shard % experts != 0:
        yield (
            f"parallel.experts is {experts}, but the {shard} processes that share a copy are not a multiple "
            "of it; change parallel.experts, parallel.shard or the number of processes"
        )
    if batch_size % world_size != 0:
        yield (
            f"batch_size is {batch_size}, not a multiple of the {world_size} processes: change "
            "--batch_size, or how many there are"
        )


def _sharing_conflicts(config: ParallelConfig, model: LoriiniConfig, document_mask: bool) -> Iterator[str]:
    """Why processes cannot share this model's experts."""
    experts, routing, width = config.experts, model.routing, model.expert_width
    whole = config.share_experts == "whole"
    if not whole and width % experts != 0:
        yield f"each expert's width is {width}, not a multiple of parallel.experts {experts}; change one"
    if whole and (model.merges or not model.is_mixture):
        yield (
            "parallel.share_experts=whole sends tokens to experts that they select, and this model selects "
            "none; set it to width"
        )
    if whole and model.num_experts % experts != 0:
        yield (
            f"num_experts is {model.num_experts}, not a multiple of parallel.experts {experts}; change one, "
            "or set parallel.share_experts to width"
        )
    if model.is_mixture and routing.unit != "token" and document_mask:
        yield (
            f"parallel.experts is {experts}, and with document_mask the processes that share experts have "
            f"different numbers of {routing.unit}s; set parallel.experts to 1, or document_mask to false"
        )
    if model.scored_by_whole_expert:
        yield (
            f"routing.node={routing.node} needs every expert whole in each process, and parallel.experts "
            "shares them out; set it to 1, or score by node=low_rank"
        )


RAISED_BY_ALL = (Interrupted, Unfinished)
"""Errors that every process raises if one does, so that the group can be destroyed."""
TORCHRUN_VARIABLES = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that torchrun sets in each process."""


def world_size() -> int:
    """The number of processes in `process_group`; 1 outside it."""
    return dist.get_world_size() if dist.is_initialized() else 1


def started_together() -> bool:
    """Whether torchrun started several processes. InputError if something else set WORLD_SIZE."""
    size = os.environ.get("WORLD_SIZE", "1")
    missing = [name for name in TORCHRUN_VARIABLES if name not in os.environ]
    if size != "1" and (missing or not size.isdecimal()):
        lacking = f"without {missing[0]}" if missing else "which is no number"
        raise InputError(f"WORLD_SIZE is {size}, {lacking}; start with torchrun, or unset it")
    return int(size) != 1


@contextmanager
def process_group() -> Iterator[None]:
    """Inside, torchrun's processes can communicate. Does nothing for one process, or inside another group.

    A process that fails alone does not destroy NCCL's group, which would wait for the others while they wait
    for it. It exits, and torchrun ends them.
    """
    if dist.is_initialized() or not started_together():
        yield
        return
    device = pick_device()
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # gloo is for data on the CPU: objects sent between processes, and checkpoints being written.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(minutes=30), **rendezvous_store())
    try:
        yield
    except BaseException as error:
        if device.type == "cpu" or isinstance(error, RAISED_BY_ALL):
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()


_groups = count()
"""Numbers the groups that this process joins."""


def rendezvous_store() -> dict[str, Any]:
    """The store in which processes find each other, this one's rank, and their number.

    torchrun keeps one store over its restarts, in which a new attempt would find the addresses of dead
    processes. On one node, every attempt therefore has its own prefix. Several nodes may differ in their
    count of restarts; with them torchrun needs TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1. A second group of the
    same processes, for another training, also has its own prefix.
    """
    store, rank, size = next(rendezvous("env://"))
    one_node = os.environ.get("GROUP_WORLD_SIZE", "1") == "1"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if one_node else "any"
    store = dist.PrefixStore(f"attempt {attempt}, group {next(_groups)}", store)  # type: ignore[attr-defined]
    return {"store": store, "rank": rank, "world_size": size}


def join_mesh(config: ParallelConfig) -> Parallel:
    """This process's place in the mesh of `config`; every process must call it."""
    world = world_size()
    if world == 1:
        return Parallel()
    device = pick_device().type
    shard = config.shard or world
    sizes = (world // shard, shard // config.experts, config.experts)
    return Parallel(
        rank=dist.get_rank(),
        world_size=world,
        mesh=init_device_mesh(device, sizes, mesh_dim_names=("replicate", "shard", "experts")),
        share_experts=config.share_experts,
        data_mesh=init_device_mesh(device, (world // shard, shard), mesh_dim_names=("replicate", "data")),
        checkpoint_group=dist.new_group(backend="gloo"),
    )


def on_first_rank(function: Callable[[], Result]) -> Result:
    """Run a function on rank 0 and return its result, or raise its InputError, in every process.

    The result is pickled: keep it small. The other processes wait for it.
    """
    if not dist.is_initialized():
        return function()
    outcome: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            outcome[0] = function()
        except InputError as error:
            outcome[1] = str(error)
    dist.broadcast_object_list(outcome, src=0, device=torch.device("cpu"))
    if outcome[1] is not None:
        raise InputError(outcome[1])
    result: Result = outcome[0]
    return result


def on_every_rank(function: Callable[[], Result]) -> list[Result]:
    """Run a function on every rank and return all results, by rank; an OSError of any is raised in all.

    The results are pickled: keep them small.
    """
    if not dist.is_initialized():
        return [function()]
    outcome: tuple[Result | None, OSError | None]
    try:
        outcome = function(), None
    except OSError as error:
        outcome = None, error
    outcomes: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(outcomes, outcome)
    for _, raised in outcomes:
        if raised is not None:
            raise raised
    return [result for result, _ in outcomes]


def own_share(items: Sequence[Item]) -> Sequence[Item]:
    """This process's share of items, which all n processes hold in the same order: every n-th."""
    return items[dist.get_rank() :: dist.get_world_size()] if dist.is_initialized() else items


def own_rows(rows: int) -> Tensor:
    """Indices of this process's rows, equally many in all; the last row is repeated to make up the number."""
    count = -(-rows // world_size())
    first = count * (dist.get_rank() if dist.is_initialized() else 0)
    return torch.arange(first, first + count).clamp(max=rows - 1)


def gather_rows(own: Tensor, rows: int) -> Tensor:
    """All `rows`, from those that each process computed (`own_rows`)."""
    if world_size() == 1:
        return own
    parts = [torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(world_size())]
    dist.all_gather(parts, own.contiguous())
    return torch.cat(parts)[:rows]
