"""Perplexity against a loop over tokens: domains, segment 1 left out or counted, bits per byte."""

import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from loriini import LoriiniForCausalLM
from loriini.common.errors import InputError
from loriini.evaluate.heldout import HeldOut
from loriini.evaluate.perplexity import evaluate, score_tokens
from tiny import LENGTH, SEGMENT, random_ids, tiny_model


def losses_by_hand(model: LoriiniForCausalLM, ids: Tensor) -> list[list[float]]:
    """The loss of every predicted token of every instance, one at a time."""
    with torch.no_grad():
        return [
            [-row.log_softmax(-1)[token].item() for row, token in zip(logits, instance[1:], strict=True)]
            for instance in ids
            for logits in model(instance[None, :-1]).logits
        ]


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


@pytest.mark.parametrize("batch_size", [1, 2, 16])
@pytest.mark.parametrize(("design", "skip"), [("lory", SEGMENT), ("mixtral", 0), ("smear", 0), ("dense", 0)])
def test_every_measure_is_that_of_a_loop_over_tokens(design: str, skip: int, batch_size: int) -> None:
    model = tiny_model(design, num_experts=1 if design == "dense" else 4)
    heldout = {
        "prose": HeldOut(random_ids(3, LENGTH + 1), bytes_per_token=3.5),
        "code": HeldOut(random_ids(2, 2 * SEGMENT + 1), bytes_per_token=2.0),
    }
    results = evaluate(model, heldout, batch_size=batch_size, precision="fp32")
    for domain, text in heldout.items():
        losses = losses_by_hand(model, text.instances)
        everything = mean(loss for row in losses for loss in row)
        counted = mean(loss for row in losses for loss in row[skip:])
        expected = {
            "perplexity": math.exp(counted),
            "perplexity_all": math.exp(everything),
            "bits_per_byte": everything / math.log(2) / text.bytes_per_token,
            "bits_per_byte_counted": counted / math.log(2) / text.bytes_per_token,
            "tokens": sum(len(row) - skip for row in losses),
        }
        assert {name: results[name][domain] for name in expected} == pytest.approx(expected, rel=1e-5)
        of_instances = [mean(row[skip:]) for row in losses]
        assert results["instance_losses"][domain] == pytest.approx(of_instances, rel=1e-5)
    causality = {"lory": "after_first_segment", "smear": "none"}
    assert (results["skip"], results["causality"]) == (skip, causality.get(design, "strict"))


@pytest.mark.parametrize(("design", "skip"), [("lory", SEGMENT), ("lory", 6), ("smear", 3), ("mixtral", 0)])
def test_prompt_routing_is_that_of_a_call_with_prompt_lengths(design: str, skip: int) -> None:
    model, ids = tiny_model(design), random_ids(3, LENGTH + 1)
    results = evaluate(
        model, {"d": HeldOut(ids, 1.0)}, skip, batch_size=2, precision="fp32", routing="prompt"
    )
    logits = model(ids[:, :-1], prompt_lengths=torch.full((3,), max(1, skip))).logits[:, skip:]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1 + skip :].flatten())
    assert results["perplexity"]["d"] == pytest.approx(loss.exp().item(), rel=1e-5)
    assert results["routing"] == "prompt"
    assert results["causality"] == ("strict" if design == "mixtral" else "after_prompt")


def test_segment_routing_is_as_in_training_after_the_first_segment() -> None:
    model, text = tiny_model("lory"), {"d": HeldOut(random_ids(3, LENGTH + 1), 1.0)}
    training, segment, prompt = (
        evaluate(model, text, precision="fp32", routing=routing)["perplexity"]["d"]
        for routing in ("training", "segment", "prompt")
    )
    assert segment == pytest.approx(training, rel=1e-5)
    assert prompt != pytest.approx(training, rel=1e-3)
    shorter = evaluate(model, text, 2, precision="fp32", routing="segment")["perplexity"]["d"]
    assert shorter != pytest.approx(evaluate(model, text, 2, precision="fp32")["perplexity"]["d"], rel=1e-4)


def test_a_routing_that_the_design_does_not_admit_is_refused() -> None:
    text = {"d": HeldOut(random_ids(2, LENGTH + 1), 1.0)}
    with pytest.raises(InputError, match=r"routing=segment: this model routes whole sequences"):
        evaluate(tiny_model("smear"), text, 2, routing="segment")
    with pytest.raises(InputError, match=r"routing=prompt: the tokens that are skipped are the prompt"):
        evaluate(tiny_model("smear"), text, routing="prompt")


@pytest.mark.parametrize("skip", [0, 2])
@pytest.mark.parametrize("routing", ["prompt", "segment"])
@pytest.mark.parametrize("design", ["dense", "smear"])
def test_a_dense_model_has_one_perplexity_in_every_routing(design: str, routing: Any, skip: int) -> None:
    model, text = tiny_model(design, num_experts=1), {"d": HeldOut(random_ids(2, LENGTH + 1), 1.0)}
    training, other = (evaluate(model, text, skip, routing=r)["perplexity"] for r in ("training", routing))
    assert other == training


def test_a_model_in_training_is_evaluated_in_evaluation_mode() -> None:
    model, text = tiny_model("ec-token"), {"d": HeldOut(random_ids(), 1.0)}
    expected = evaluate(model, text)
    assert evaluate(model.train(), text) == expected
    assert model.training
    with pytest.raises(RuntimeError):
        score_tokens(model, random_ids().double())
    assert model.training


def test_a_domain_is_evaluated_by_the_expert_of_its_label() -> None:
    model, ids = tiny_model("label", label_names=["code", "prose"]), random_ids(3, LENGTH + 1)
    results = evaluate(
        model, {"prose": HeldOut(ids, 1.0), "code": HeldOut(ids, 1.0)}, 0, batch_size=2, precision="fp32"
    )
    for label, domain in enumerate(("code", "prose")):
        logits = model(ids[:, :-1], routing_labels=torch.full((3,), label)).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        assert results["perplexity"][domain] == pytest.approx(loss.exp().item(), rel=1e-5)
    assert results["perplexity"]["code"] != results["perplexity"]["prose"]


@pytest.mark.parametrize(
    ("names", "known"), [(["code", "prose"], "code, prose"), (None, "not in its config")]
)
def test_a_domain_without_a_label_is_refused(names: list[str] | None, known: str) -> None:
    model = tiny_model("label", label_names=names)
    with pytest.raises(InputError, match=f"no label is named 'poems'; the model's labels are: {known}"):
        evaluate(model, {"poems": HeldOut(random_ids(), 1.0)})


@pytest.mark.parametrize(("length", "at_once"), [(64, [16, 4]), (1024, [8, 4]), (8193, [1, 1])])
def test_fewer_instances_are_evaluated_at_once_where_they_are_long(length: int, at_once: list[int]) -> None:
    model, batches = tiny_model("dense", num_experts=1, num_hidden_layers=1), list[int]()
    model.register_forward_pre_hook(lambda _, inputs: batches.append(len(inputs[0])))
    evaluate(model, {"prose": HeldOut(random_ids(sum(at_once), length + 1), 1.0)})
    assert batches == at_once


@torch.no_grad()
def test_instances_have_draws_of_a_random_router_of_their_own_in_any_batch() -> None:
    model = tiny_model("random")
    heldout = {name: HeldOut(random_ids(5, LENGTH + 1), 1.0) for name in "ab"}
    of_batches = [evaluate(model, heldout, 0, batch_size=size) for size in (1, 3, 16)]
    for found in of_batches[1:]:
        for name in "ab":
            assert found["instance_losses"][name] == pytest.approx(of_batches[0]["instance_losses"][name])
    ids = heldout["b"].instances[:1]
    sixth = score_tokens(model, ids, router_seeds=torch.tensor([6])).loss.mean().item()
    assert of_batches[0]["instance_losses"]["b"][0] == pytest.approx(sixth)
    assert sixth != pytest.approx(score_tokens(model, ids).loss.mean().item())


@pytest.mark.parametrize("tokens", [2, SEGMENT])
def test_text_that_ends_within_segment_one_is_refused(tokens: int) -> None:
    text = {"short": HeldOut(random_ids(1, tokens + 1), 1.0)}
    with pytest.raises(InputError, match=f"'short': .* {tokens} .* --skip"):
        evaluate(tiny_model("lory"), text)
    assert evaluate(tiny_model("lory"), text, skip=1)["tokens"] == {"short": tokens - 1}
