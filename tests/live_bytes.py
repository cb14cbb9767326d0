"""How many bytes of tensors are alive at once, without a GPU that counts them."""

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor, UntypedStorage
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """The most bytes alive at once of the tensors that operations inside read or made.

    FSDP frees gathered weights by resizing their storages, so sizes are read anew at every operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self.storages: dict[int, weakref.ref[UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.count(leaf for leaf in tree_leaves((args, out)) if isinstance(leaf, Tensor))
        return out

    def count(self, tensors: Iterable[Tensor]) -> int:
        """The bytes that are alive, those of `tensors` among them."""
        for tensor in tensors:
            local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
            storage = local.untyped_storage()
            key = storage._cdata
            if key not in self.storages:
                self.storages[key] = weakref.ref(storage)
                weakref.finalize(storage, self.storages.pop, key, None)
        alive = [storage() for storage in list(self.storages.values())]
        now = sum(storage.nbytes() for storage in alive if storage is not None)
        self.peak = max(self.peak, now)
        return now
