"""Fused heads and losses, and losses in parts, are the naive ones without all logits."""

from typing import Any

import pytest
import torch
from torch import Tensor

from covering import grid
from loriini import RoutingConfig
from loriini.estimate.activations import saved_bytes
from loriini.model import LoriiniForCausalLM
from loriini.model.kernels.products import ALIGNED
from loriini.model.loss import IGNORE_INDEX, fused_loss, loss_of_rows, rows_at_once, token_losses
from tiny import SEGMENT, assert_same_gradients, gradients, random_ids, tiny_model


def trained_once(
    model: LoriiniForCausalLM, targets: Tensor, **arguments: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    out = model(random_ids_of(targets), shift_labels=targets, **arguments)
    assert (out.logits is None) == bool(arguments)
    out.loss.backward()
    return out.loss.detach(), gradients(model)


def random_ids_of(targets: Tensor) -> Tensor:
    return targets.clamp(min=0)


SKIPPING = RoutingConfig(segment_length=SEGMENT, first_segment="skip_loss")


@pytest.mark.parametrize(
    ("design", "settings"),
    [
        ("lory", {}),
        (SKIPPING, {"lm_head_bias": True}),
        ("mixtral", {"tie_word_embeddings": True, "block": "gpt2"}),
        ("mixtral", {"lm_head_bias": True, "block": "phimoe"}),
    ],
    ids=["plain", "skips segment 1", "tied", "biased"],
)
def test_loss_and_gradients_are_those_of_the_naive_twin(
    design: str | RoutingConfig, settings: dict[str, Any]
) -> None:
    model = tiny_model(design, **settings).train()
    if model.lm_head.bias is not None:
        torch.nn.init.normal_(model.lm_head.bias, std=2.0)
    targets = random_ids()
    targets[0, :3] = targets[-1, -1] = IGNORE_INDEX
    naive, expected = trained_once(model, targets)
    fused, actual = trained_once(model, targets, skip_logits=True)
    torch.testing.assert_close(fused, naive, rtol=1e-6, atol=0)
    assert_same_gradients(actual, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("items", [None, 20])
@pytest.mark.parametrize("skip_logits", [False, True])
def test_the_z_loss_of_the_output_is_added_in_training_only(skip_logits: bool, items: int | None) -> None:
    """Over targets that count, as the cross-entropy, which is reported without it."""
    model = tiny_model("mixtral", output_z=0.3).train()
    ids, targets = random_ids(), random_ids()
    targets[0, :3] = targets[-1, -1] = IGNORE_INDEX
    arguments = {"shift_labels": targets, "skip_logits": skip_logits, "num_items_in_batch": items}
    plain = tiny_model("mixtral").train()
    plain.load_state_dict(model.state_dict())
    expected = plain(ids, **{**arguments, "skip_logits": False})
    log_z = expected.logits.logsumexp(-1)[targets != IGNORE_INDEX]
    z_loss = 0.3 * log_z.square().sum() / (items or len(log_z))
    (expected.loss + z_loss).backward()
    out = model(ids, **arguments)
    out.loss.backward()
    torch.testing.assert_close(out.loss, expected.loss + z_loss)
    torch.testing.assert_close(out.output_z_loss, z_loss.detach())
    torch.testing.assert_close(out.cross_entropy, expected.cross_entropy.detach())
    assert not out.cross_entropy.requires_grad
    assert_same_gradients(gradients(model), gradients(plain), rtol=1e-4, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(model(ids, **arguments).loss, out.loss.detach())
        evaluated = model.eval()(ids, **arguments)
        assert evaluated.output_z_loss is None
        torch.testing.assert_close(evaluated.loss, plain.eval()(ids, **arguments).loss)


def test_a_loss_that_skips_segment_1_needs_all_positions() -> None:
    model, ids = tiny_model(SKIPPING).train(), random_ids()
    with pytest.raises(ValueError, match="logits_to_keep"):
        model(ids, shift_labels=ids[:, -4:], logits_to_keep=4)


@pytest.mark.parametrize(("routing", "seen"), [("segment", SEGMENT), ("prompt", 2 * SEGMENT)])
def test_of_a_longer_prompt_segment_1_is_left_out_where_it_alone_is_seen(routing: str, seen: int) -> None:
    model = tiny_model(SKIPPING).train()
    ids, targets, prompts = random_ids(2, 12), random_ids(2, 12), torch.full((2,), 2 * SEGMENT)
    out = model(ids, shift_labels=targets, prompt_lengths=prompts, inference_routing=routing)
    losses_BL = torch.nn.functional.cross_entropy(out.logits.mT, targets, reduction="none")
    torch.testing.assert_close(out.loss, losses_BL[:, seen - 1 :].mean())


@pytest.mark.parametrize("biased", [False, True])
def test_under_autocast_products_are_in_bfloat16_and_the_sum_in_float32(biased: bool) -> None:
    states, head = torch.randn(2, 40, 16), torch.randn(61, 16)
    bias = torch.randn(61) if biased else None
    targets = torch.randint(61, (2, 40))
    with torch.autocast("cpu", torch.bfloat16):
        loss = fused_loss(states, head, targets, targets.numel(), bias).loss
    expected = fused_loss(states, head, targets, targets.numel(), bias).loss
    assert loss.dtype == torch.float32
    assert loss.item() != expected.item()
    torch.testing.assert_close(loss, expected, rtol=2e-3, atol=0)


def test_probabilities_of_bfloat16_logits_are_float32() -> None:
    states, head = torch.randn(40, 16).bfloat16(), torch.randn(61, 16).bfloat16()
    targets = torch.randint(61, (40,))
    logits = torch.nn.functional.linear(states, head).float()
    loss, _, _ = loss_of_rows(states, head, None, targets, torch.float32, 0.0)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))


@grid(z=[0.0, 0.3], biased=[False, True], most_logits=[1, 61 * 7, 61 * 80], multiple=[1, 64])
def test_gradients_of_the_fused_loss_are_exact(
    z: float, biased: bool, most_logits: int, multiple: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ALIGNED, "cpu", multiple)  # as on a GPU
    states, head, bias = (torch.randn(*s, dtype=torch.double) for s in ((2, 40, 16), (61, 16), (61,)))
    targets = torch.randint(61, (2, 40))
    targets[0, 3:9] = IGNORE_INDEX
    inputs = [each.requires_grad_() for each in (states, head, *([bias] if biased else []))]
    logits = torch.nn.functional.linear(states, head, bias if biased else None)
    naive = torch.nn.functional.cross_entropy(logits.mT, targets, reduction="sum") / 7
    expected_z = z * logits.logsumexp(-1)[targets != IGNORE_INDEX].square().sum() / 7
    naive = naive + expected_z
    fused, _, z_loss = fused_loss(states, head, targets, 7, bias if biased else None, most_logits, z)
    torch.testing.assert_close(fused, naive)
    if z:
        torch.testing.assert_close(z_loss, expected_z.detach())
    assert (z_loss is None) == (z == 0)
    actual = torch.autograd.grad(3 * fused, inputs, retain_graph=True)
    assert all(map(torch.equal, actual, torch.autograd.grad(3 * fused, inputs)))
    for one, other in zip(actual, torch.autograd.grad(3 * naive, inputs), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("skip_logits", [False, True])
def test_calls_with_the_batchs_items_add_up_to_its_loss(skip_logits: bool) -> None:
    """As transformers' Trainer calls a model with accumulation: of targets each counts once, of auxiliary
    losses each call's by its share of targets."""
    model = tiny_model("mixtral").train()
    ids = random_ids(4, 12)
    targets = ids.clone()
    targets[:3, 6:] = IGNORE_INDEX
    items = (targets != IGNORE_INDEX).sum()
    calls = [
        model(x, shift_labels=y, num_items_in_batch=items, skip_logits=skip_logits)
        for x, y in zip(ids.split([3, 1]), targets.split([3, 1]), strict=True)
    ]
    with torch.no_grad():
        logits = model(ids).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    shares = [18 / 30, 12 / 30]
    expected += sum(share * call.auxiliary_loss for share, call in zip(shares, calls, strict=True))
    torch.testing.assert_close(sum(call.loss for call in calls), expected, rtol=1e-5, atol=0)


def test_logits_are_never_kept() -> None:
    model = tiny_model("dense", num_experts=1, vocab_size=4096).train()
    ids = random_ids(8, 64)
    logits = ids.numel() * 4096 * 4
    naive = saved_bytes(model, lambda: model(ids, shift_labels=ids))
    fused = saved_bytes(model, lambda: model(ids, shift_labels=ids, skip_logits=True))
    assert naive - fused > 0.9 * logits


@pytest.mark.parametrize("most_logits", [1, 61 * 7, 61 * 80])
@pytest.mark.parametrize("biased", [False, True])
def test_losses_of_tokens_in_parts_equal_those_of_all_logits(most_logits: int, biased: bool) -> None:
    head, rows = torch.nn.Linear(16, 61, bias=biased), []
    head.register_forward_hook(lambda module, inputs, logits: rows.append(len(logits)))
    states, targets = torch.randn(2, 40, 16, requires_grad=True), torch.randint(61, (2, 40))
    targets[0, 3:9] = IGNORE_INDEX
    losses = token_losses(states, head, targets, 61, most_logits)
    assert sum(rows) == 80
    assert max(rows) <= max(1, most_logits // 61)
    expected = torch.nn.functional.cross_entropy(head(states).mT, targets, reduction="none")
    torch.testing.assert_close(losses, expected)
    assert (losses[0, 3:9] == 0).all()
    inputs = (states, *head.parameters())
    actual = torch.autograd.grad(losses.sum(), inputs)
    for one, other in zip(actual, torch.autograd.grad(expected.sum(), inputs), strict=True):
        torch.testing.assert_close(one, other)


@torch.no_grad()
def test_without_reduction_the_loss_is_of_each_target_and_no_logits_are_returned() -> None:
    model = tiny_model("mixtral").train()
    ids = random_ids(2, 12)
    out = model(ids, shift_labels=ids, reduction="none")
    expected = torch.nn.functional.cross_entropy(model(ids).logits.mT, ids, reduction="none")
    torch.testing.assert_close(out.loss, expected)
    assert out.logits is None
    with pytest.raises(ValueError, match="reduction is 'sum'"):
        model(ids, labels=ids, reduction="sum")


@pytest.mark.parametrize(("vocabulary", "rows"), [(50_257, 640), (1 << 19, 64), (1 << 26, 1), (32_000, 1024)])
def test_logits_at_once_are_whole_tiles(vocabulary: int, rows: int) -> None:
    assert rows_at_once(vocabulary) == rows


def test_a_hook_of_the_head_is_called_in_every_loss() -> None:
    model, ids, called = tiny_model("lory").train(), random_ids(), []
    model.lm_head.register_forward_hook(lambda module, inputs, logits: logits / 2)
    model.lm_head.register_full_backward_hook(lambda *_: called.append(True))
    expected = model(ids, labels=ids).loss
    loss = model(ids, labels=ids, skip_logits=True).loss
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert called


@pytest.mark.parametrize("items", [0, torch.tensor(0)], ids=["number", "tensor"])
@pytest.mark.parametrize("skip_logits", [False, True])
def test_a_batch_without_targets_has_a_loss_of_0(skip_logits: bool, items: int | Tensor) -> None:
    model, ids = tiny_model("mixtral").train(), random_ids()
    targets = torch.full_like(ids, IGNORE_INDEX)
    assert model(ids, shift_labels=targets, num_items_in_batch=items, skip_logits=skip_logits).loss == 0
