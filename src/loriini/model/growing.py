"""Keys and values that grow token by token in room left for more, without a copy of all at every token."""

import torch
from torch import Tensor

LEAST_ROOM = 128
"""Tokens for which room is made at least, once a second call adds any."""
SHARE_OF_ROOM = 4
"""Room is made for one more token in so many: memory grows by a quarter at most, beyond `LEAST_ROOM`."""


def may_grow_in_place() -> bool:
    """Whether nothing needs the states as they are: no gradient, and no graph of torch.compile."""
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def appended(kept: Tensor, new: Tensor, room: Tensor | None) -> tuple[Tensor, Tensor]:
    """States `kept` (…, L, D) and `new` (…, S, D) after them, as the beginning of a room, and this room.

    It is the given one where that begins with `kept` and is large enough; else they are copied to a new one.
    """
    length, total = kept.shape[-2], kept.shape[-2] + new.shape[-2]
    if room is None or room.shape[-2] < total or not _begins_with(room, kept):
        tokens = total + max(LEAST_ROOM, total // SHARE_OF_ROOM)
        room = kept.new_empty(*kept.shape[:-2], tokens, kept.shape[-1])
        room[..., :length, :] = kept
    room[..., length:total, :] = new
    return room[..., :total, :], room


def _begins_with(room: Tensor, kept: Tensor) -> bool:
    """Whether `kept` are the first states in `room`, which may be written to."""
    same_place = room.data_ptr() == kept.data_ptr() and room.stride() == kept.stride()
    writable = torch.is_inference_mode_enabled() or not room.is_inference()
    return same_place and room.shape[:-2] == kept.shape[:-2] and writable
