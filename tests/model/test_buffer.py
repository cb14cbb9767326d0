"""States that grow in place against concatenation."""

import copy

import pytest
import torch
from transformers import DynamicCache

from loriini.model.generate import buffer
from loriini.model.generate.buffer import appended
from loriini.model.generate.cache import RoutedCacheLayer
from tiny import random_ids, tiny_model


def states(tokens: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, tokens, 4)


@torch.no_grad()
def test_states_are_appended_in_place_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "LEAST_ROOM", 3)
    expected, room, moves = states(2), None, 0
    kept = expected
    for tokens in (1, 2, 1, 1, 5, 1):
        new, before = states(tokens), room
        kept, room = appended(kept, new, room)
        expected = torch.cat([expected, new], dim=-2)
        assert torch.equal(kept, expected)
        moves += room is not before
    assert moves == 3  # room for 3 more than 3, 7 and 12


@torch.no_grad()
def test_states_that_are_not_in_the_room_are_copied() -> None:
    first, room = appended(states(2), states(1), None)
    for kept in (first[:1], first.clone(), first[..., 1:, :], first.mT.contiguous().mT):
        found, other = appended(kept, new := states(1, len(kept)), room)
        assert other is not room
        assert torch.equal(found, torch.cat([kept, new], dim=-2))
    cropped = first[..., :1, :]
    found, other = appended(cropped, new := states(1), room)
    assert other is not room
    assert torch.equal(found, torch.cat([cropped, new], dim=-2))


@torch.no_grad()
def test_two_that_share_a_room_grow_apart() -> None:
    both, room = appended(states(2), states(1), None)
    (one, own), (other, another) = (appended(both, states(1), room) for _ in range(2))
    assert own is room
    assert another is not room
    assert not torch.equal(one, other)
    assert torch.equal(one[..., :3, :], other[..., :3, :])


@torch.no_grad()
def test_states_of_another_dtype_are_concatenated() -> None:
    layer, (first, second) = RoutedCacheLayer(), (states(2).bfloat16(), states(1))
    layer.update(first, first)
    keys, values = layer.update(second, second.bfloat16())
    assert (keys.dtype, values.dtype) == (torch.float32, torch.bfloat16)
    assert torch.equal(keys, torch.cat([first, second], dim=-2))


@torch.no_grad()
def test_an_offloaded_layer_keeps_no_room() -> None:
    layer = RoutedCacheLayer()
    layer.update(states(2), states(2))
    layer.update(states(1), states(1))
    assert layer.key_room is not None
    layer.offload()
    assert layer.key_room is layer.value_room is None


def test_inference_tensors_are_not_written_to_elsewhere() -> None:
    with torch.inference_mode():
        kept, room = appended(states(2), states(1), None)
        kept, again = appended(kept, states(1), room)
    assert again is room
    with torch.no_grad():
        found, other = appended(kept, new := states(1), room)
    assert other is not room
    assert torch.equal(found, torch.cat([kept, new], dim=-2))


@torch.no_grad()
def test_a_copied_cache_grows_apart() -> None:
    model, ids, cache = tiny_model(), random_ids(2, 8), DynamicCache()
    model(ids[:, :4], past_key_values=cache)
    model(ids[:, 4:5], past_key_values=cache)
    other = copy.deepcopy(cache)
    model(ids[:, 6:7], past_key_values=other)
    found = model(ids[:, 5:6], past_key_values=cache).logits
    fresh = DynamicCache()
    for part in (ids[:, :4], ids[:, 4:5], ids[:, 5:6]):
        expected = model(part, past_key_values=fresh).logits
    torch.testing.assert_close(found, expected)


def test_a_cache_with_gradients_is_concatenated() -> None:
    layer, (first, second) = RoutedCacheLayer(), (states(2).requires_grad_(), states(1).requires_grad_())
    layer.update(first, first)
    keys, _ = layer.update(second, second)
    keys.sum().backward()
    assert layer.key_room is None
    assert torch.equal(second.grad, torch.ones_like(second))
