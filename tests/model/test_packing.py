"""Several documents in a row: each is computed as if it were alone."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from loriini import DESIGNS, LoriiniForCausalLM, RoutingConfig
from loriini.model.context import packed_positions
from tiny import (
    CLOSE,
    EVERY,
    SEGMENT,
    gradients,
    label_arguments,
    over_blocks,
    random_ids,
    restart_router_seed,
    run,
    tiny_model,
)

LENGTHS = [[3, 9, 1, 4], [17], [2 * SEGMENT, SEGMENT, 5]]
"""The documents of each row, 17 tokens together."""


def positions(rows: list[list[int]]) -> Tensor:
    return torch.stack([torch.cat([torch.arange(n) for n in lengths]) for lengths in rows])


def alone(model: LoriiniForCausalLM, ids: Tensor, rows: list[list[int]], **arguments: Any) -> Tensor:
    """The naive twin: the logits (B, L, V) of one document at a time."""
    labels = label_arguments(model, len(ids))
    logits = []
    for row, lengths in enumerate(rows):
        of_row = {name: label[row : row + 1] for name, label in labels.items()}
        parts = [model(part[None], **of_row).logits[0] for part in ids[row].split(lengths)]
        logits.append(torch.cat(parts))
    return torch.stack(logits)


@pytest.mark.parametrize(("name", "block"), over_blocks(EVERY))
def test_a_document_in_a_pack_has_the_logits_it_has_alone(name: str, block: str) -> None:
    model, ids = tiny_model(name, block=block), random_ids(3, 17)
    with torch.no_grad():
        packed = run(model, ids, position_ids=positions(LENGTHS))
        torch.testing.assert_close(packed.logits, alone(model, ids, LENGTHS), **CLOSE)
    if DESIGNS[name].unit != "token":
        real = packed.routings[0].valid.view(3, -1).sum(1).tolist()
        segments = [[-(-n // SEGMENT) for n in lengths] for lengths in LENGTHS]
        expected = [len(n) for n in LENGTHS] if DESIGNS[name].unit == "sequence" else list(map(sum, segments))
        assert real == expected


UNIFORM = replace(DESIGNS["lory"], segment_length=SEGMENT, first_segment="uniform")
COMPARED = [name for name in EVERY if DESIGNS[name].selection != "expert_choice"]
"""Expert choice compares all units of a batch in training."""


@pytest.mark.parametrize("design", [*COMPARED, pytest.param(UNIFORM, id="uniform")])
def test_a_pack_trains_as_its_documents_do(design: str | RoutingConfig) -> None:
    model, ids = tiny_model(design).train(), random_ids(3, 17)
    weights = torch.linspace(-1, 1, 61)
    (run(model, ids, position_ids=positions(LENGTHS)).logits * weights).sum().backward()
    found = gradients(model)
    model.zero_grad()
    restart_router_seed(model)
    (alone(model, ids, LENGTHS) * weights).sum().backward()
    wanted = gradients(model)
    assert found.keys() == wanted.keys()
    for parameter, gradient in wanted.items():
        torch.testing.assert_close(found[parameter], gradient, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["lory", "smear", "ec-segment", "mixtral", "segment-then-token"])
@torch.no_grad()
def test_positions_of_one_row_serve_every_row(name: str) -> None:
    model, ids, rows = tiny_model(name), random_ids(3, 17), LENGTHS[:1]
    expected = run(model, ids, position_ids=positions(rows * 3)).logits
    assert torch.equal(run(model, ids, position_ids=positions(rows)).logits, expected)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["lory", "smear", "mixtral", "segment-then-token"])
def test_padding_around_packed_documents_changes_nothing(name: str, side: str) -> None:
    model, ids = tiny_model(name), random_ids(3, 17)
    places = (2, 0) if side == "left" else (0, 2)
    mask = pad(torch.ones_like(ids), places)
    with torch.no_grad():
        expected = run(model, ids, position_ids=positions(LENGTHS)).logits
        padded = run(
            model, pad(ids, places), attention_mask=mask, position_ids=pad(positions(LENGTHS), places)
        )
    torch.testing.assert_close(padded.logits[mask.bool()].view_as(expected), expected, **CLOSE)


def test_which_position_ids_are_of_packed_rows() -> None:
    mask = torch.tensor([[0, 0, 1, 1, 1]])
    assert packed_positions(torch.tensor([[1, 1, 0, 1, 2]]), mask) is None  # as transformers pads
    assert packed_positions(torch.tensor([[7, 8, 9, 10, 11]]), None) is None
    assert packed_positions(torch.tensor([[0], [3]]), None) is None
    found = packed_positions(torch.tensor([[0, 0, 0, 1, 0], [0, 0, 0, 1, 2]]), mask.expand(2, -1))
    assert found is not None
    assert found.tolist() == [[-1, -1, 0, 1, 0], [-1, -1, 0, 1, 2]]


def test_padding_inside_a_packed_document_is_refused() -> None:
    mask, inside = torch.tensor([[1, 1, 0, 1, 1, 1]]), torch.tensor([[0, 1, 1, 2, 0, 1]])
    with pytest.raises(ValueError, match="padding inside of one"):
        packed_positions(inside, mask)
    between = packed_positions(torch.tensor([[0, 1, 1, 0, 1, 2]]), mask)
    assert between is not None
    assert between.tolist() == [[0, 1, -1, 0, 1, 2]]


@pytest.mark.parametrize("arguments", [{"use_cache": True}, {"prompt_lengths": torch.tensor([2, 2, 2])}])
def test_what_packed_rows_cannot_have_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="one document a row"):
        tiny_model("lory")(random_ids(3, 17), position_ids=positions(LENGTHS), **arguments)


@torch.no_grad()
def test_packed_rows_under_flash_attention_are_refused_but_for_one() -> None:
    model, ids = tiny_model("lory"), random_ids(3, 17)
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="attn_implementation='sdpa'"):
        model(ids, position_ids=positions(LENGTHS))


@torch.no_grad()
def test_a_mask_of_all_pairs_is_kept_in_packed_rows() -> None:
    model, ids = tiny_model("mixtral"), random_ids(1, 17)
    itself = torch.eye(17, dtype=torch.bool)[None, None]  # no token sees another
    arguments = {"position_ids": positions(LENGTHS[:1])}
    assert not torch.equal(
        model(ids, attention_mask=itself, **arguments).logits, model(ids, **arguments).logits
    )


@torch.no_grad()
def test_continuous_batching_is_refused_where_routing_would_be_lost() -> None:
    with pytest.raises(ValueError, match="use generate"):
        tiny_model("lory").model(random_ids(), cache=object())


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_layers_share_one_mask_in_the_dtype_of_their_products(precision: torch.dtype) -> None:
    """torch would make another of a boolean mask in every layer, and keep all for the backward pass."""
    model, ids = tiny_model("mixtral", num_hidden_layers=3).train(), random_ids(3, 17)
    masks = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.shape[-2:] == (17, 17):
            masks[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    casts = torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16)
    with casts, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(ids, position_ids=positions(LENGTHS))
    assert [(mask.dtype, mask.shape) for mask in masks.values()] == [(precision, (3, 1, 17, 17))]
