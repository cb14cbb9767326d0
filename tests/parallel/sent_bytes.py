"""Counting of the bytes that a process sends to the others, by collective."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ALL_TO_ALL = "alltoall_base_"


class SentBytes(TorchDispatchMode):
    """While inside, `sent` adds up this process's bytes by collective, as ring algorithms send them.

    Only collectives of `groups` count; without any, those of all groups. Gathers, scatters of sums and
    all-to-alls of single tensors are counted. All-reduces are named with 0 bytes, and DTensor's collectives,
    such as the sum of a replicated parameter's gradients, are not seen.
    """

    def __init__(self, *groups: dist.ProcessGroup) -> None:
        super().__init__()
        self.groups = groups
        self.sent: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count a collective and call it."""
        if func.namespace == "c10d":
            boxed = next(
                a for a in args if isinstance(a, torch.ScriptObject) and "ProcessGroup" in str(a._type())
            )
            group = dist.ProcessGroup.unbox(boxed)
            if not self.groups or group in self.groups:
                kind, tensors = func._opname, [t for t in args[:2] if isinstance(t, Tensor)]
                smaller = min((t.nbytes for t in tensors), default=0)
                sent = _to_others(*args[:5]) if kind == ALL_TO_ALL else (group.size() - 1) * smaller
                self.sent[kind] = self.sent.get(kind, 0) + sent
        return func(*args, **(kwargs or {}))


def _to_others(_: Tensor, x: Tensor, boxed: Any, received_G: list[int], sent_G: list[int]) -> int:
    """The bytes of an all-to-all that leave this process: all but the rows that it keeps."""
    group = dist.ProcessGroup.unbox(boxed)
    kept = sent_G[group.rank()] if sent_G else len(x) // group.size()
    return x.nbytes - kept * x[:1].nbytes
