"""Windows of tokens: which next tokens they score, how many are taken at once, and logits in pieces."""

import pytest
import torch
from torch import Tensor, nn

from loriini.evaluate import perplexity
from loriini.evaluate.windows import Window, batches, log_probs_of


def log_probs_whole(states_SD: Tensor, head: nn.Module, targets_SR: Tensor) -> tuple[Tensor, Tensor]:
    """The naive twin: the logits of all positions at once."""
    log_probs_SV = head(states_SD).log_softmax(-1)
    return log_probs_SV.gather(1, targets_SR), log_probs_SV.argmax(1)[:, None] == targets_SR


@pytest.mark.parametrize("most", [1, 24, 25, 1000])
def test_logits_in_pieces_give_the_same_and_no_more_are_held(most: int) -> None:
    head, states_SD = nn.Linear(4, 12), torch.randn(7, 4)
    targets_SR = torch.stack([head(states_SD).argmax(1), torch.randint(12, (7,))], 1)
    expected = log_probs_whole(states_SD, head, targets_SR)
    held = list[int]()
    head.register_forward_hook(lambda *call: held.append(call[2].numel()))
    found = log_probs_of(states_SD, head, targets_SR, 12, most_logits=most)
    torch.testing.assert_close(found, expected)
    assert found[1][:, 0].all()
    assert max(held) <= max(12, most)
    assert sum(held) == 7 * 12


def test_a_window_scores_what_follows_its_prompt() -> None:
    window = Window((5, 6, 7, 8), prompt=2)
    assert window.ids[window.scored] == (6, 7, 8)
    assert window.targets([1, 2, 3]).tolist() == [[7, 7, 7], [8, 8, 8], [1, 2, 3]]
    assert Window((5,), prompt=1).targets([4]).tolist() == [[4]]


def test_fewer_windows_are_taken_at_once_where_they_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = [Window(tuple(range(length)), 1) for length in (2, 9, 4, 4, 5, 1)]
    monkeypatch.setattr(perplexity, "TOKENS_AT_ONCE", 10)
    lengths = [[len(window.ids) for window in batch] for batch in batches(windows, 3)]
    assert lengths == [[9], [5, 4], [4, 2], [1]]
    monkeypatch.setattr(perplexity, "TOKENS_AT_ONCE", 30)
    lengths = [[len(window.ids) for window in batch] for batch in batches(windows, 3)]
    assert lengths == [[9, 5, 4], [4, 2, 1]]
    assert not list(batches([], 3))
