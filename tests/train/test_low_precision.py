"""Experts cast once a step: the same gradients as autocast's casts in every micro-batch."""

import copy

import pytest
import torch
from torch import Tensor

from covering import grid
from loriini import LoriiniForCausalLM
from loriini.model.experts.stacked import Experts
from loriini.model.kernels import merge_kernels
from loriini.train.low_precision import experts_cast_once
from loriini.train.speed import SpeedConfig, speed_up
from tiny import assert_same_gradients, gradients, random_ids, run, tiny_model


def cast_weights(experts: Experts) -> set[str]:
    """The weights that experts compute on copies of, in bfloat16."""
    return {name for name, weight in experts.stacked().items() if weight.dtype == torch.bfloat16}


def gradients_of_two(model: LoriiniForCausalLM, ids: Tensor, dtype: torch.dtype | None) -> dict[str, Tensor]:
    """The gradients of two micro-batches under autocast, with the experts cast to `dtype` before both."""
    model.zero_grad()
    with experts_cast_once(model, dtype):
        for part in ids.chunk(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = run(model, part, labels=part).loss
            loss.backward()
    return gradients(model)


@grid(
    design=["dense", "lory", "mixtral", "aoe", "ec-segment"],
    recompute=[False, True],
    checkpointing=[False, True],
    into_main_grads=[False, True],
)
def test_gradients_are_those_of_casts_in_each_micro_batch(
    design: str, recompute: bool, checkpointing: bool, into_main_grads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_kernels, "adds_gradient", lambda *_: into_main_grads)
    model, ids = tiny_model(design, recompute_merge=recompute).train(), random_ids(4, 8)
    speed_up(model, SpeedConfig(activation_checkpointing=checkpointing))
    saved = copy.deepcopy(model.state_dict())
    wanted = gradients_of_two(model, ids, None)
    found = gradients_of_two(model, ids, torch.bfloat16)
    assert_same_gradients(found, wanted, rtol=0.01, atol=1e-6)
    assert all(gradient.dtype == torch.float32 for gradient in found.values())
    assert all(not cast_weights(mixture.experts) for mixture in model.model.mixtures)
    assert_same_gradients(model.state_dict(), saved, rtol=0, atol=0)


def test_each_weight_is_cast_once() -> None:
    model = tiny_model("mixtral", num_hidden_layers=1).train()
    experts = model.model.mixtures[0].experts
    with experts_cast_once(model, torch.bfloat16):
        first = experts.stacked()
        assert {weight.dtype for weight in first.values()} == {torch.bfloat16}
        assert all(first[name] is weight for name, weight in experts.stacked().items())
    assert {weight.dtype for weight in experts.stacked().values()} == {torch.float32}


def test_a_weight_without_gradient_or_in_another_dtype_is_left_as_it_is() -> None:
    model = tiny_model("mixtral", num_hidden_layers=1).train()
    experts = model.model.mixtures[0].experts
    experts.up_proj.requires_grad_(False)
    with experts_cast_once(model, torch.bfloat16):
        assert cast_weights(experts) == {"gate_proj", "down_proj"}
    parameters = dict(experts.bfloat16().named_parameters())
    with experts_cast_once(model, torch.bfloat16):
        assert all(experts.stacked()[name] is weight for name, weight in parameters.items())


@pytest.mark.parametrize(("design", "copied"), [("mixtral", True), ("lory", False)])
def test_only_merges_that_are_recomputed_cast_for_themselves(design: str, copied: bool) -> None:
    model = tiny_model(design, num_hidden_layers=1, recompute_merge=True).train()
    with experts_cast_once(model, torch.bfloat16):
        assert bool(cast_weights(model.model.mixtures[0].experts)) == copied


def test_a_failed_step_leaves_no_copies() -> None:
    model = tiny_model("mixtral", num_hidden_layers=1).train()
    with pytest.raises(RuntimeError), experts_cast_once(model, torch.bfloat16):
        raise RuntimeError
    assert not cast_weights(model.model.mixtures[0].experts)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")
@pytest.mark.parametrize("into_main_grads", [False, True])
def test_compiled_layers_compute_on_new_copies_without_recompiling(
    into_main_grads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_kernels, "adds_gradient", lambda *_: into_main_grads)
    torch.compiler.reset()
    model, ids = tiny_model("lory", num_hidden_layers=1).train(), random_ids(4, 8)
    wanted = gradients_of_two(model, ids, None)
    model.model.layers[0].compile(backend="aot_eager", fullgraph=True)
    gradients_of_two(model, ids, torch.bfloat16)
    with torch._dynamo.config.patch(error_on_recompile=True):
        found = gradients_of_two(model, ids, torch.bfloat16)
    assert_same_gradients(found, wanted, rtol=0.05, atol=0.01)
