"""torch.compile without graph breaks: designs are traced whole, and compiled ones equal eager ones."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from loriini import LoriiniForCausalLM
from tiny import (
    assert_same_gradients,
    covering_designs,
    gradients,
    label_arguments,
    needs_a_compiler,
    over_blocks,
    random_ids,
    restart_router_seed,
    tiny_model,
)

# torch itself uses what it deprecates, when it traces autograd functions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch.compiler.reset()


def step(
    model: Callable[..., Any], parameters: LoriiniForCausalLM, ids: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """The logits and gradients of one training step, without the update."""
    parameters.zero_grad()
    restart_router_seed(parameters)
    out = model(ids, labels=ids, use_cache=False, **label_arguments(parameters, len(ids)))
    out.loss.backward()
    return out.logits.detach(), gradients(parameters)


@pytest.mark.parametrize(("design", "block"), over_blocks(covering_designs()))
def test_a_training_step_is_one_graph(design: str, block: str) -> None:
    model, ids = tiny_model(design, block=block, num_hidden_layers=1).bfloat16().train(), random_ids(2, 8)
    traced = torch.compile(model, backend="eager", fullgraph=True)
    (logits, found), (expected, wanted) = step(traced, model, ids), step(model, model, ids)
    torch.testing.assert_close(logits, expected)
    assert_same_gradients(found, wanted)


@pytest.mark.parametrize("recompute", [False, True])
def test_a_merge_is_kept_or_recomputed_by_compiled_models_too(recompute: bool) -> None:
    model, ids = tiny_model("lory", num_hidden_layers=1, recompute_merge=recompute).train(), random_ids(4, 16)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    kept: set[int] = set()

    def note(tensor: Tensor) -> Tensor:
        kept.add(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        logits, found = step(compiled, model, ids)
    expected, wanted = step(model, model, ids)
    torch.testing.assert_close(logits, expected)
    assert_same_gradients(found, wanted, rtol=1e-4, atol=1e-5)
    units = ids.numel() // model.config.routing.segment_length
    merged = units * model.model.mixtures[0].experts.gate_proj[0].numel()
    assert (merged in kept) is not recompute


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which torch reads of a layer's input
def test_in_float32_it_is_one_graph_whatever_experts_are_chosen() -> None:
    model = tiny_model("mixtral", num_hidden_layers=1).train()
    batches = [random_ids(2, 8) for _ in range(3)]
    wanted = [step(model, model, ids) for ids in batches]
    counter = CompileCounterWithBackend("eager")
    model.model.mixtures[0].compile(backend=counter)
    for ids, (expected, gradients_wanted) in zip(batches, wanted, strict=True):
        logits, found = step(model, model, ids)
        torch.testing.assert_close(logits, expected)
        assert_same_gradients(found, gradients_wanted, rtol=1e-4, atol=1e-5)
    assert counter.frame_count == 1


@pytest.mark.parametrize("design", ["lory", "random"])
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which torch reads of a layer's input
def test_layers_that_are_compiled_share_a_graph(design: str) -> None:
    model, ids = tiny_model(design, num_hidden_layers=3).bfloat16().train(), random_ids(2, 8)
    expected, wanted = step(model, model, ids)
    counter = CompileCounterWithBackend("eager")
    for layer in model.model.layers:
        layer.compile(backend=counter)
    logits, found = step(model, model, ids)
    assert counter.frame_count == 1
    torch.testing.assert_close(logits, expected)
    assert_same_gradients(found, wanted)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which torch reads of a layer's input
def test_rows_of_any_number_of_segments_share_a_graph() -> None:
    """As with documents apart, whose number differs between micro-batches."""
    model, counter = tiny_model("lory", num_hidden_layers=1).train(), CompileCounterWithBackend("eager")
    model.model.layers[0].compile(backend=counter)
    for segments in range(2, 12):
        step(model, model, random_ids(1, segments * model.config.routing.segment_length))
    assert counter.frame_count <= 2  # the first of fixed sizes, the second of any


@needs_a_compiler
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which torch reads of a layer's input
def test_code_generated_for_a_layer_equals_the_eager_one() -> None:
    """The layer that is ours: the code of a whole model takes half a minute."""
    model, ids = tiny_model("lory", num_hidden_layers=1).bfloat16().train(), random_ids(2, 8)
    expected, wanted = step(model, model, ids)
    inductor = CompileCounterWithBackend("inductor")
    model.model.mixtures[0].compile(fullgraph=True, backend=inductor)
    logits, found = step(model, model, ids)
    assert inductor.frame_count == 1
    torch.testing.assert_close(logits, expected, rtol=0.05, atol=0.03)
    assert_same_gradients(found, wanted, rtol=0.05, atol=0.01)
