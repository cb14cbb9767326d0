"""The rows of a batch that every process has, divided among the processes for computation."""

import torch
import torch.distributed as dist
from torch import Tensor

from loriini.parallel.mesh import group_size


def own_rows(rows: int) -> Tensor:
    """The numbers of this process's rows. All have equally many: where they run out, the last is repeated."""
    count = -(-rows // group_size())
    first = count * (dist.get_rank() if dist.is_initialized() else 0)
    return torch.arange(first, first + count).clamp(max=rows - 1)


def gather_rows(own: Tensor, rows: int) -> Tensor:
    """All `rows`; every process has computed its `own_rows`."""
    if group_size() == 1:
        return own
    parts = [torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(group_size())]
    dist.all_gather(parts, own.contiguous())
    return torch.cat(parts)[:rows]
