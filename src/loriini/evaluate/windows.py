"""Windows of tokens on which answers are scored, and the log-probabilities of their scored tokens.

Axes: S scored positions of several windows, R requests that share a window, D model, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from loriini.evaluate.perplexity import most_at_once
from loriini.model.loss import MOST_LOGITS, rows_at_once


@dataclass(frozen=True)
class Window:
    """The input of a forward pass: `ids`, of which the first `prompt` are context.

    The last context token and every token after it predict the next token. A request's very last token is
    only predicted and not in `ids`, so requests that differ only in that token share a window.
    """

    ids: tuple[int, ...]
    prompt: int

    @property
    def scored(self) -> slice:
        """The positions whose next tokens are scored."""
        return slice(self.prompt - 1, len(self.ids))

    def targets(self, last: Sequence[int]) -> Tensor:
        """The next tokens (S, R) of the scored positions, for the last token of each request."""
        inner = torch.tensor(self.ids[self.prompt :], dtype=torch.long)
        return torch.cat([inner[:, None].expand(-1, len(last)), torch.tensor([list(last)])])


def batches(windows: Sequence[Window], size: int) -> Iterator[list[Window]]:
    """Windows in batches, longest first: `size` at once, or fewer if these have too many tokens."""
    order, start = sorted(windows, key=lambda window: -len(window.ids)), 0
    while start < len(order):
        end = start + min(size, most_at_once(len(order[start].ids)))
        yield order[start:end]
        start = end


def log_probs_of(
    states_SD: Tensor,
    head: nn.Module,
    targets_SR: Tensor,
    vocabulary: int,
    dtype: torch.dtype = torch.float32,
    most_logits: int = MOST_LOGITS,
) -> tuple[Tensor, Tensor]:
    """Log-probability (S, R) of each target in `dtype`, and whether it is the likeliest token.

    `head` makes logits (S, V) of states; at most `most_logits` are held at once, or those of one position.
    """
    size = rows_at_once(vocabulary, most_logits)
    found, likeliest = [], []
    for part_SD, part_SR in zip(states_SD.split(size), targets_SR.split(size), strict=True):
        log_probs_SV = head(part_SD).log_softmax(-1, dtype=dtype)
        wanted_SR = part_SR.to(log_probs_SV.device)
        found.append(log_probs_SV.gather(1, wanted_SR))
        likeliest.append(log_probs_SV.argmax(1)[:, None] == wanted_SR)
    return torch.cat(found), torch.cat(likeliest)
