"""Trade-offs of memory and time leave losses and gradients unchanged."""

import gc
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from covering import one_of_each
from loriini import LoriiniForCausalLM
from loriini.train import loop
from loriini.train.measures import Measure
from loriini.train.speed import SpeedConfig, compile_layers, garbage_collected, speed_up
from loriini.train.upcycle import WarmupConfig
from runs import metrics, tiny_corpus, tiny_run
from tiny import (
    BLOCKS,
    GRID,
    assert_same_gradients,
    gradients,
    label_arguments,
    random_ids,
    restart_router_seed,
    tiny_model,
)


@one_of_each(design=[*GRID, "aoe"], block=BLOCKS)
def test_activation_checkpointing_leaves_loss_routings_and_gradients(design: str, block: str) -> None:
    if design == "aoe":
        block = "llama"  # its experts have a gate
    model, ids = tiny_model(design, block=block).train(), random_ids()
    plain = model(ids, shift_labels=ids, **label_arguments(model, len(ids)))
    plain.loss.backward()
    expected = gradients(model)
    model.zero_grad()
    restart_router_seed(model)
    speed_up(model, SpeedConfig(activation_checkpointing=True))
    again = model(ids, shift_labels=ids, **label_arguments(model, len(ids)))
    again.loss.backward()
    assert torch.equal(again.loss, plain.loss)
    assert all(torch.equal(a.gates, b.gates) for a, b in zip(again.routings, plain.routings, strict=True))
    assert_same_gradients(gradients(model), expected, rtol=1e-6, atol=1e-8)


@torch._dynamo.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")  # torch's own
def test_a_model_compiles_its_training_step_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for one graph: the dense model's makes way for the mixture's, and measures have none.

    `tests/parallel/test_mesh.py` runs the graphs that are compiled.
    """
    compiling = Mock(side_effect=partial(torch.compile, backend="eager"))
    monkeypatch.setattr(torch, "compile", compiling)

    def measured(model: LoriiniForCausalLM) -> dict[str, float]:
        model.generate(random_ids(1, 5), max_new_tokens=2, do_sample=False, pad_token_id=0)
        return {"loss": model(ids := random_ids(1, 7), labels=ids).loss.item()}

    for name in ("eager", "compiled"):
        speed = SpeedConfig(compile=name == "compiled")
        run = tiny_run("lory", steps=4, speed=speed, warmup=WarmupConfig(0.5))
        loop.train(run, tiny_corpus(tmp_path / "tokenizer"), tmp_path / name, Measure(1, measured))
    assert compiling.call_count == 2 * 3  # two layers and the loss, of both models
    eager, compiled = (metrics(tmp_path / name) for name in ("eager", "compiled"))
    assert [m["experts"] for m in compiled] == [1, 1, 3, 3]
    assert [m["loss"] for m in compiled] == pytest.approx([m["loss"] for m in eager], rel=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")
def test_a_compiled_router_has_its_gradients_in_float32_too() -> None:
    """Traced under autocast, its backward pass would be in bfloat16, though its forward pass is not."""
    ids, found = random_ids(), []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = tiny_model("mixtral").train()
        if compiled:
            compile_layers(torch.nn.ModuleList())  # sets how to trace
            for layer in model.model.layers:
                layer.compile(backend="aot_eager")
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(ids, shift_labels=ids).loss
        loss.backward()
        found.append(gradients(model))
    torch.compiler.reset()
    eager, other = found
    for name in (name for name in eager if ".router." in name):
        assert (other[name] - eager[name]).norm() < 1e-4 * eager[name].norm()


@pytest.mark.parametrize(("every", "collected"), [(2, [1, 1]), (0, [])])
def test_garbage_is_collected_by_steps(
    every: int, collected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(gc, "collect", calls.append)
    with garbage_collected(every) as collect:
        assert gc.isenabled() == (every == 0)
        for step in range(1, 6):
            collect(step)
    assert calls == collected
    assert gc.isenabled()
