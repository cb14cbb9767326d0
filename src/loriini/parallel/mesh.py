"""Many processes as one: who they are, how they stand in a mesh, and what they agree upon.

torchrun starts them and tells each its rank. They form a mesh (replicate, shard, experts): each of
`replicate` groups holds the whole model, spread over shard · experts processes; along `experts` the width of
every expert is spread, and along the other two the data. Ranks next to each other are of one expert group, so
that it stays inside a node.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.rendezvous import rendezvous

from loriini.errors import InputError
from loriini.fields import Count, CountOrZero, check_fields
from loriini.hardware import pick_device
from loriini.model import LoriiniConfig

Result = TypeVar("Result")


@dataclass(frozen=True)
class ParallelConfig:
    """How processes share a model; a single process holds all of it."""

    shard: CountOrZero = 0
    """Processes that share one copy of parameters, gradients and optimizer state (FSDP, ZeRO-3). 0: all; 1:
    each holds a whole copy; in between: hybrid, for example the GPUs of a node."""
    experts: Count = 1
    """Processes, of those that share a copy, that share the width of every expert (Lory section 6)."""

    def __post_init__(self) -> None:
        check_fields(self, "parallel.")


@dataclass(frozen=True)
class Parallel:
    """This process among all. `mesh` is None for one alone, and every function here is then the identity.

    `mesh` is (replicate, shard, experts); `data_mesh` the same processes as (replicate, data), over which
    everything but experts is sharded; `files` a group of its own for what goes on in the background.
    """

    rank: int = 0
    world_size: int = 1
    mesh: DeviceMesh | None = None
    data_mesh: DeviceMesh | None = None
    files: dist.ProcessGroup | None = None

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    @property
    def experts(self) -> int:
        """How many processes share the width of every expert."""
        return 1 if self.mesh is None else self.mesh["experts"].size()

    def group(self, dim: str) -> dist.ProcessGroup:
        """The processes along one dimension of the meshes: replicate, shard, experts or data."""
        assert self.mesh is not None
        assert self.data_mesh is not None
        return (self.data_mesh if dim == "data" else self.mesh).get_group(dim)

    @property
    def fsdp_meshes(self) -> tuple[DeviceMesh, DeviceMesh]:
        """Over what FSDP shards the experts' parameters, and over what the rest."""
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

    def mean_of(self, *numbers: float) -> tuple[float, ...]:
        """The means of some numbers over all processes, in one exchange."""
        return numbers if self.mesh is None else tuple(self.mean(self._tensor(numbers)).tolist())

    def any(self, here: bool) -> bool:
        """Whether it is so in any process."""
        return here if self.mesh is None else bool(self.sum(self._tensor([float(here)])).item())

    def _tensor(self, numbers: Any) -> Tensor:
        return torch.tensor(numbers, dtype=torch.float64, device=pick_device())


ALONE = Parallel()


def check_mesh(config: ParallelConfig, world_size: int, batch_size: int, model: LoriiniConfig) -> None:
    """InputError for processes, a batch or a model that cannot be spread like this."""
    shard, experts = config.shard or world_size, config.experts
    if world_size == 1:
        shard = experts = 1
    width, routing = model.expert_width, model.routing
    refusals = [
        (
            shard > world_size or world_size % max(1, shard) != 0,
            f"parallel.shard is {config.shard}, but {world_size} processes are no multiple of it; "
            "start another number, or set it to 0",
        ),
        (
            shard % max(1, experts) != 0,
            f"parallel.experts is {experts}, but the {shard} processes that share a model are no multiple; "
            "change parallel.experts, parallel.shard or the number of processes",
        ),
        (
            batch_size % world_size != 0,
            f"batch_size is {batch_size}, no multiple of the {world_size} processes; change one",
        ),
        (
            width % max(1, experts) != 0,
            f"each expert's width is {width}, no multiple of parallel.experts {experts}; change one",
        ),
        (
            experts > 1 and model.scored_by_norm and routing.node != "low_rank",
            f"routing.node={routing.node} needs the whole width of an expert, which parallel.experts would "
            "spread over processes; set it to 1, or score by node=low_rank",
        ),
    ]
    for refused, reason in refusals:
        if refused:
            raise InputError(reason)


def world_size() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def processes() -> Iterator[None]:
    """While inside, the processes that torchrun started can speak to each other. Nothing to do for one."""
    if world_size() == 1 or dist.is_initialized():
        yield
        return
    device = pick_device()
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # gloo carries what lies on the CPU: words between processes, and checkpoints on their way to disk.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(minutes=30), **meeting_place())
    try:
        yield
    finally:
        dist.destroy_process_group()


def meeting_place() -> dict[str, Any]:
    """The store in which processes find each other, this one's rank, and how many they are.

    torchrun keeps one store over its restarts, in which a new attempt would find the addresses of dead
    processes. On one node every attempt gets a corner of its own; between nodes the counts of restarts
    differ, and torchrun must be told TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1.
    """
    store, rank, size = next(rendezvous("env://"))
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
    return {"store": store, "rank": rank, "world_size": size}


def spread(config: ParallelConfig) -> Parallel:
    """This process among those that are there, in the mesh of `config`."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return Parallel()
    world, device = dist.get_world_size(), pick_device().type
    shard = config.shard or world
    sizes = (world // shard, shard // config.experts, config.experts)
    return Parallel(
        rank=dist.get_rank(),
        world_size=world,
        mesh=init_device_mesh(device, sizes, mesh_dim_names=("replicate", "shard", "experts")),
        data_mesh=init_device_mesh(device, (world // shard, shard), mesh_dim_names=("replicate", "data")),
        files=dist.new_group(backend="gloo"),
    )


def once(function: Callable[[], Result]) -> Result:
    """What `function` returns in the first process, which alone calls it; its InputError is everyone's.

    The result goes to the others as it is: keep it small. While the first works, the others wait.
    """
    if not dist.is_initialized():
        return function()
    told: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            told[0] = function()
        except InputError as error:
            told[1] = str(error)
    dist.broadcast_object_list(told, src=0, device=torch.device("cpu"))
    if told[1] is not None:
        raise InputError(told[1])
    result: Result = told[0]
    return result
