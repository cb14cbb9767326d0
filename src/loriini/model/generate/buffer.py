"""Keys and values that grow token by token in room left for more, without a copy of all at every token."""

from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor

LEAST_ROOM = 128
"""Tokens for which room is made at least, once a second call adds any."""
SHARE_OF_ROOM = 4
"""Room is made for one more token in so many: memory grows by a quarter at most, beyond `LEAST_ROOM`."""


@dataclass
class Buffer:
    """A tensor (…, T, D) with room for states, of which the first `filled` tokens are somebody's."""

    states: Tensor
    filled: int


def may_grow_in_place(kept: Tensor | None, new: Tensor) -> TypeGuard[Tensor]:
    """Whether there are states, of the dtype of `new`, and neither a gradient nor a graph needs them."""
    if kept is None or kept.numel() == 0 or kept.dtype != new.dtype:
        return False
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def appended(kept: Tensor, new: Tensor, room: Buffer | None) -> tuple[Tensor, Buffer]:
    """States `kept` (…, L, D) and `new` (…, S, D) after them, as the beginning of a room, and this room.

    It is the given one where `kept` are all that it is filled with and it is large enough; else they are
    copied to a new one, as after a crop: the cropped states may be another cache's.
    """
    length, total = kept.shape[-2], kept.shape[-2] + new.shape[-2]
    if room is None or room.states.shape[-2] < total or not _is_filled_with(room, kept):
        tokens = total + max(LEAST_ROOM, total // SHARE_OF_ROOM)
        room = Buffer(kept.new_empty(*kept.shape[:-2], tokens, kept.shape[-1]), length)
        room.states[..., :length, :] = kept
    room.states[..., length:total, :] = new
    room.filled = total
    return room.states[..., :total, :], room


def _is_filled_with(room: Buffer, kept: Tensor) -> bool:
    """Whether `kept` are the states in a room, which may be written to."""
    states = room.states
    same_place = states.data_ptr() == kept.data_ptr() and states.stride() == kept.stride()
    same = same_place and states.shape[:-2] == kept.shape[:-2] and room.filled == kept.shape[-2]
    return same and (torch.is_inference_mode_enabled() or not states.is_inference())
