"""Every design learns, equals its naive twin, and sees no later tokens but those that it declares."""

import copy
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from loriini import DESIGNS, LoriiniForCausalLM, RoutingConfig
from model.experts.twins import use_twins
from tiny import (
    EVERY,
    LENGTH,
    SEGMENT,
    assert_same_gradients,
    gradients,
    over_blocks,
    random_ids,
    run,
    tiny_config,
    tiny_model,
)

Outcome = tuple[Tensor, dict[str, Tensor]]
CONSTANT_GATES = {"dense", "label", "frozen", "random"}
"""Designs whose scorer learns nothing: it has no weights, or they are fixed."""


@pytest.mark.parametrize(("name", "block"), over_blocks(EVERY))
def test_every_parameter_that_should_gets_a_gradient(name: str, block: str) -> None:
    model, ids = tiny_model(name, block=block).train(), random_ids()
    out = run(model, ids, labels=ids)
    out.loss.backward()
    assert torch.isfinite(out.loss)
    for parameter_name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            assert DESIGNS[name].scorer == "frozen"
            assert ".router." in parameter_name
        elif ".experts." in parameter_name:
            layer = int(parameter_name.split(".")[2])
            used = (out.routings[layer].gates > 0).any(0)
            if parameter_name.endswith("low_proj"):  # every expert's norm is in the load-balancing loss
                used |= DESIGNS[name].load_balance > 0
            assert torch.equal(parameter.grad.flatten(1).any(1), used), parameter_name
        elif ".router." in parameter_name and name in CONSTANT_GATES:
            assert not parameter.grad.any(), parameter_name
        else:
            assert parameter.grad.any(), parameter_name
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), parameter_name


PADDINGS = ["none", "left", "right"]


def padded(ids: Tensor, side: str) -> tuple[Tensor, Tensor]:
    """Ids and mask of rows that lose none, two, four … tokens to padding at a side."""
    mask = torch.ones_like(ids)
    for b in range(len(ids)):
        if side == "left":
            mask[b, : 2 * b] = 0
        elif side == "right":
            mask[b, ids.shape[1] - 2 * b :] = 0
    return ids.masked_fill(mask == 0, 2), mask


@pytest.mark.parametrize(("name", "block"), over_blocks(EVERY))
def test_the_fast_path_equals_its_naive_twin(name: str, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels have tests of their own; here it is how tokens, padded or not, fall into units."""
    model = tiny_model(name, block=block, num_hidden_layers=1).double().train()
    tolerance = {"rtol": 1e-6, "atol": 1e-7}
    for side in PADDINGS:
        ids, mask = padded(random_ids(), side)
        targets = random_ids().masked_fill(mask == 0, -100)

        def outcome(ids: Tensor = ids, mask: Tensor = mask, targets: Tensor = targets) -> Outcome:
            model.zero_grad()
            out = run(model, ids, attention_mask=mask, shift_labels=targets)
            out.loss.backward()
            return out.logits[mask.bool()].detach(), gradients(model)

        logits, found = outcome()
        with monkeypatch.context() as patch:
            use_twins(patch)
            expected_logits, expected = outcome()
        torch.testing.assert_close(logits, expected_logits, **tolerance)
        assert_same_gradients(found, expected, **tolerance)


@pytest.mark.parametrize(("name", "block"), over_blocks(EVERY))
def test_a_padded_row_equals_itself_alone(name: str, block: str) -> None:
    """In training too, but where an expert chooses among the units of the batch."""
    model = tiny_model(name, block=block)
    modes = (False,) if DESIGNS[name].selection == "expert_choice" else (False, True)
    for side, training in product(("left", "right"), modes):
        model.train(training)
        ids, mask = padded(random_ids(), side)
        together = run(model, ids, attention_mask=mask).logits
        for b, real in enumerate(mask.bool()):
            labels = {"routing_labels": torch.tensor([b])} if name == "label" else {}
            alone = run(model, ids[b : b + 1, real], **labels).logits[0]
            torch.testing.assert_close(together[b, real], alone, rtol=1e-4, atol=1e-4)


CHANGES = [*range(SEGMENT + 1), 2 * SEGMENT - 1, 2 * SEGMENT, 3 * SEGMENT + 1]
"""Tokens after which the future is changed: all around the end of segment 1, some later."""


def leaks(model: LoriiniForCausalLM, ids: Tensor, first: int) -> list[int]:
    """The tokens t ≥ `first` after which a change of the future changes an output of `first` to t."""
    expected = run(model, ids).logits
    found = []
    for t in CHANGES[first:]:
        changed = torch.cat([ids[:, : t + 1], random_ids(len(ids), ids.shape[1] - t - 1)], dim=1)
        now = run(model, changed).logits
        if not torch.allclose(now[:, first : t + 1], expected[:, first : t + 1], atol=1e-4):
            found.append(t)
    return found


VARIANTS = {
    **{name: tiny_config(name).routing for name in EVERY},
    "lory uniform": RoutingConfig(segment_length=SEGMENT, first_segment="uniform"),
    "lory skip_loss": RoutingConfig(segment_length=SEGMENT, first_segment="skip_loss"),
    "lory of equal gates": RoutingConfig(segment_length=SEGMENT, gates="uniform"),
    "lory top-2": RoutingConfig(segment_length=SEGMENT, selection="top_k", gates="softmax_selected"),
    "lory with shared experts": RoutingConfig(segment_length=SEGMENT, num_shared_experts=2),
    "frozen segments": RoutingConfig(segment_length=SEGMENT, scorer="frozen"),
    "random sequences": RoutingConfig(unit="sequence", scorer="random"),
    "ec-segment by label": replace(tiny_config("ec-segment").routing, scorer="label"),
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_causality_as_measured(name: str, training: bool) -> None:
    design = VARIANTS[name]
    causality = design.training_causality if training else design.causality
    model, ids = tiny_model(design).train(training), random_ids(8, 4 * SEGMENT + 3)
    if causality == "strict":
        assert not leaks(model, ids, first=0)
    elif causality == "after_first_segment":
        assert not leaks(model, ids, first=SEGMENT)
        assert leaks(model, ids, first=0) == list(range(SEGMENT - 1))
    else:
        assert leaks(model, ids, first=SEGMENT)


def test_skip_loss_counts_its_share_of_a_batchs_items() -> None:
    model, ids = tiny_model(VARIANTS["lory skip_loss"]).train(), random_ids()
    items = ids[:, 1:].numel()  # as transformers' Trainer counts the targets of a batch of one call
    given = model(ids, labels=ids, num_items_in_batch=items).loss
    torch.testing.assert_close(given, model(ids, labels=ids).loss)


@pytest.mark.parametrize("side", PADDINGS)
def test_skip_loss_leaves_segment_one_out_of_the_training_loss_only(side: str) -> None:
    model = tiny_model(VARIANTS["lory skip_loss"]).train()
    ids, mask = padded(random_ids(), side)
    targets = random_ids().masked_fill(mask == 0, -100)
    out = model(ids, attention_mask=mask, shift_labels=targets)
    real = mask.bool()
    counted = {True: real & (mask.cumsum(1) > SEGMENT), False: real}
    for training, those in counted.items():
        loss = model.train(training)(ids, attention_mask=mask, shift_labels=targets).loss
        torch.testing.assert_close(loss, cross_entropy(out.logits[those], targets[those]))


def test_labels_shift_inside_and_shift_labels_do_not() -> None:
    model, instance = tiny_model(), random_ids(2, LENGTH + 1)
    shifted = model(instance[:, :-1], shift_labels=instance[:, 1:])
    expected = cross_entropy(shifted.logits.mT, instance[:, 1:])
    torch.testing.assert_close(shifted.loss, expected)
    inside = model(instance[:, :-1], labels=instance[:, :-1])
    expected = cross_entropy(inside.logits[:, :-1].mT, instance[:, 1:-1])
    torch.testing.assert_close(inside.loss, expected)
    ignored = instance[:, 1:].masked_fill(torch.arange(LENGTH) < 5, -100)
    partly = model(instance[:, :-1], shift_labels=ignored)
    expected = cross_entropy(partly.logits[:, 5:].mT, instance[:, 6:])
    torch.testing.assert_close(partly.loss, expected)


@pytest.mark.parametrize("name", EVERY)
def test_routings_have_the_shapes_of_the_contract(name: str) -> None:
    model, ids = tiny_model(name), random_ids()
    units = {"token": LENGTH, "segment": 3, "prefix": 3, "sequence": 1}[DESIGNS[name].unit]
    routings = run(model, ids).routings
    assert len(routings) == 2
    assert (routings[0] is routings[1]) == (DESIGNS[name].scope == "global")
    for routing in routings:
        assert routing.unit_shape == (3, units)
        assert routing.logits.shape == routing.gates.shape == (3 * units, 4)
        assert routing.logits.dtype == routing.gates.dtype == torch.float32


@pytest.mark.parametrize(("name", "block"), over_blocks(EVERY))
def test_save_and_load(name: str, block: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    model, ids = tiny_model(name, block=block), random_ids()
    model.save_pretrained(tmp_path)
    loaded = LoriiniForCausalLM.from_pretrained(tmp_path)
    assert loaded.config.routing == model.config.routing
    assert not loaded.training
    assert model.state_dict().keys() == loaded.state_dict().keys()
    assert all(torch.equal(w, loaded.state_dict()[name]) for name, w in model.state_dict().items())
    # Loaded weights lie elsewhere in memory, where kernels may sum in another order.
    torch.testing.assert_close(run(loaded, ids).logits, run(model, ids).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("settings", [{"use_reentrant": True}, {"preserve_rng_state": True}], ids=str)
def test_checkpoints_that_drop_the_gradients_of_routing_are_refused(settings: dict[str, bool]) -> None:
    model = tiny_model("mixtral").train()
    renamed = getattr(model, "activation_checkpointing_enable", None)
    with pytest.raises(ValueError, match="pass use_reentrant=False"):
        (renamed or model.gradient_checkpointing_enable)(settings)
    assert not model.model.gradient_checkpointing


def test_one_expert_is_the_same_model_in_every_design() -> None:
    ids = random_ids()
    reference = tiny_model("dense", num_experts=1)
    expected = reference(ids).logits
    for name in EVERY:
        model = tiny_model(name, num_experts=1)
        model.load_state_dict(copy.deepcopy(reference.state_dict()), strict=name != "random")  # has draws
        torch.testing.assert_close(run(model, ids).logits, expected, rtol=1e-5, atol=1e-5)


def test_logits_to_keep() -> None:
    model, ids = tiny_model(), random_ids()
    logits = model(ids).logits
    assert torch.equal(model(ids, logits_to_keep=2).logits, logits[:, -2:])
    assert torch.equal(model(ids, logits_to_keep=torch.tensor([0, 4])).logits, logits[:, [0, 4]])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "inputs_embeds"),
        ({"input_ids": torch.ones(1, 2).long(), "inputs_embeds": torch.ones(1, 2, 16)}, "inputs_embeds"),
        ({"input_ids": torch.zeros(0, 8).long()}, "no sequences"),
        ({"input_ids": torch.zeros(2, 0).long()}, "no tokens"),
    ],
    ids=["nothing", "ids and embeddings", "no sequences", "no tokens"],
)
def test_calls_without_tokens_are_refused(arguments: dict[str, Tensor], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        tiny_model()(**arguments)
