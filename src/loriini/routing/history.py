"""The history of a cached sequence: what pooling needs of the tokens before a call, as running sums."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from loriini.routing.pooling import segment_sums
from loriini.routing.unit import RoutingContext

REMOVABLE = 256
"""Tokens that can be removed from the end of a history, at least: more than assisted generation drafts."""


class History:
    """The sums (B, 1+N, D) of cached states: of the prompt's tokens in segment 1, then of each segment.

    States are summed in blocks of `removable`, at least a segment; the last `removable` are always kept as
    they are, so that they can be removed.
    """

    def __init__(self, segment_length: int) -> None:
        self.segment_length = segment_length
        self.removable = max(REMOVABLE, segment_length)
        self.sums: Tensor | None = None
        self.summed = 0
        self.recent: list[Tensor] = []

    def add(self, x_BLD: Tensor, context: RoutingContext) -> None:
        """Append a call's states (B, L, D), the last of its history."""
        self.recent.append(x_BLD)
        unsummed = context.past + context.length - self.summed
        if unsummed >= 2 * self.removable:
            recent = self._joined()
            older = unsummed - self.removable
            self.sums = self._add_up(recent[:, :older], context)
            self.summed += older
            self.recent = [recent[:, older:].clone()]

    def means(self, context: RoutingContext) -> tuple[Tensor, Tensor]:
        """The mean of each segment so far (B, N, D), and of the prompt's tokens in segment 1 (B, D)."""
        assert context.prompt_lengths_B is not None
        sums, T = self._add_up(self._joined(), context), self.segment_length
        lengths_B1 = context.positions().amax(1, keepdim=True) + 1
        starts_N = T * torch.arange(sums.shape[1] - 1, device=sums.device)
        prompts_B1 = context.prompt_lengths_B[:, None].clamp(max=T).minimum(lengths_B1)
        counts_BN = torch.cat([prompts_B1, (lengths_B1 - starts_N).clamp(min=0, max=T)], dim=1)
        means = (sums / counts_BN.clamp(min=1)[..., None]).to(self.recent[-1].dtype)
        return means[:, 1:], means[:, 0]

    def check_crop(self, length: int) -> None:
        """ValueError where fewer tokens than were summed are to stay."""
        if length < self.summed:
            raise ValueError(
                f"the cache can be cropped to {self.summed} tokens or more, not to {length}: of earlier ones "
                "it holds only sums; fill a new cache"
            )

    def crop(self, length: int) -> None:
        """Leave the first `length` tokens."""
        self.check_crop(length)
        self.recent = [self._joined()[:, : length - self.summed]]

    def select(self, function: Callable[[Tensor], Tensor]) -> None:
        """Apply a selection of sequences."""
        self.recent = [function(self._joined())]
        self.sums = None if self.sums is None else function(self.sums)

    def _joined(self) -> Tensor:
        if len(self.recent) > 1:
            self.recent = [torch.cat(self.recent, dim=1)]
        return self.recent[0]

    def _add_up(self, states_BLD: Tensor, context: RoutingContext) -> Tensor:
        """The sums with those of the tokens after the summed ones."""
        positions_BL = context.positions()[:, self.summed : self.summed + states_BLD.shape[1]]
        segments = -(-(context.past + context.length) // self.segment_length)
        assert context.prompt_lengths_B is not None
        added = segment_sums(
            states_BLD, positions_BL, context.prompt_lengths_B, self.segment_length, segments
        )
        if self.sums is None:
            return added
        return added + pad(self.sums, (0, 0, 0, added.shape[1] - self.sums.shape[1]))
