"""What is counted on fake tensors is what autograd saves on real ones."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from covering import grid
from live_bytes import LiveBytes
from loriini import DESIGNS, LoriiniConfig, LoriiniForCausalLM
from loriini.estimate.activations import ActivationBytes, KnownShapes, count_activations, saved_bytes
from loriini.estimate.memory import cast_parameters
from loriini.recipes import find_recipe
from loriini.train.low_precision import experts_cast_once
from loriini.train.speed import SpeedConfig, speed_up
from tiny import BLOCKS

BATCH, LENGTH, LAYERS = 4, 128, 3


def config(design: str, block: str = "llama", width: int = 176, **changes: Any) -> LoriiniConfig:
    return LoriiniConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=width,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_experts=1 if design == "dense" else 4,
        routing=replace(DESIGNS[design], segment_length=32),
        block="llama" if block == "normed" else block,
        qk_norm="all" if block == "normed" else None,
        dropout=0.1 if block == "gpt2" else 0.0,
        **changes,
    )


def inputs(instances: int = BATCH) -> dict[str, Any]:
    ids = torch.randint(512, (instances, LENGTH))
    labels = torch.zeros(instances, dtype=torch.long)
    return {"input_ids": ids, "shift_labels": ids, "routing_labels": labels, "skip_logits": True}


def measured(model: LoriiniForCausalLM, dtype: torch.dtype) -> int:
    """What a real forward pass saves, without the copies of weights that autocast makes."""

    def forward() -> Any:
        with torch.autocast("cpu", dtype) if dtype != torch.float32 else nullcontext():
            return model(**inputs())

    cast = [
        n for n, p in model.named_parameters() if p.dim() > 1 and "embed" not in n and "positions" not in n
    ]
    if model.config.tie_word_embeddings:
        cast.append("model.embed_tokens.weight")  # the head's
    sizes = dict(model.named_parameters())
    copies = 0 if dtype == torch.float32 else sum(sizes[n].numel() * dtype.itemsize for n in cast)
    return saved_bytes(model, forward) - copies


def test_saved_bytes_count_every_storage_once_and_leave_parameters_out() -> None:
    model, x = nn.Linear(4, 3, bias=False), torch.randn(5, 4)

    def forward() -> torch.Tensor:
        y = model(x)
        return (y.square() + y.exp() + (x * model.weight[0]).sum()).sum()

    inputs, outputs, exponentials = 5 * 4, 5 * 3, 5 * 3
    assert saved_bytes(model, forward) == 4 * (inputs + outputs + exponentials)


@grid(
    design=["dense", "lory", "smear", "ec-segment", "switch", "mixtral", "random"],
    block=BLOCKS,
    dtype=[torch.float32, torch.bfloat16],
)
def test_activations_are_those_of_a_real_pass_to_2_percent(
    design: str, block: str, dtype: torch.dtype
) -> None:
    assert_counted(design, block, dtype)


@pytest.mark.parametrize(
    ("design", "dtype", "changes"),
    [
        ("aoe", torch.float32, {}),
        ("aoe", torch.bfloat16, {"low_rank": 4}),
        ("mixtral", torch.bfloat16, {"width": 100}),  # which the grouped kernel does not take
        ("ec-segment", torch.float32, {"width": 50}),
        ("dense", torch.bfloat16, {"tie_word_embeddings": True}),
        ("lory", torch.float32, {"tie_word_embeddings": True}),
    ],
    ids=str,
)
def test_so_are_those_of_other_sizes(design: str, dtype: torch.dtype, changes: dict[str, Any]) -> None:
    assert_counted(design, "llama", dtype, **changes)


def kept(counted: ActivationBytes) -> int:
    """All that a model keeps without activation checkpointing."""
    return counted.rest + LAYERS * counted.layer


def assert_counted(design: str, block: str, dtype: torch.dtype, **changes: Any) -> None:
    shape = config(design, block, **changes)
    real = measured(LoriiniForCausalLM(shape).train(), dtype)
    counted = count_activations(shape, BATCH, LENGTH, dtype)
    assert kept(counted) == pytest.approx(real, rel=0.02)


def test_routing_by_label_counts_the_states_that_a_router_would_keep() -> None:
    real = measured(LoriiniForCausalLM(config("label")).train(), torch.float32)
    counted = kept(count_activations(config("label"), BATCH, LENGTH, torch.float32))
    assert counted - real == pytest.approx(LAYERS * BATCH * LENGTH * 64 * 4, rel=0.01)


def test_of_the_loss_its_gradients_are_kept_and_no_logits() -> None:
    shape = config("dense")
    counted = count_activations(shape, BATCH, LENGTH, torch.float32)
    assert counted.head_gradient == 4 * 64 * 512
    assert 0 < counted.rest - counted.head_gradient < BATCH * LENGTH * 512 * 4


def test_merged_weights_are_counted_by_unit() -> None:
    per_unit = 3 * 64 * 176 * 4
    assert count_activations(config("lory"), BATCH, LENGTH, torch.float32).merged == BATCH * 4 * per_unit
    assert count_activations(config("smear"), BATCH, LENGTH, torch.float32).merged == BATCH * per_unit
    assert count_activations(config("mixtral"), BATCH, LENGTH, torch.float32).merged == 0


def peak_of_step(model: LoriiniForCausalLM, dtype: torch.dtype, arguments: dict[str, Any]) -> int:
    """Bytes at the peak of a step beyond parameters and gradients."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with LiveBytes() as live:
        own = live.count([t for p in model.parameters() for t in (p, p.grad)])
        low = dtype if dtype != torch.float32 else None
        with experts_cast_once(model, low):
            with torch.autocast("cpu", low) if low else nullcontext():
                loss = model(**arguments).loss
            loss.backward()
    return live.peak - own


def estimated_peak(
    config: LoriiniConfig, instances: int, length: int, dtype: torch.dtype, checkpointing: bool
) -> float:
    counted, layers = count_activations(config, instances, length, dtype), config.num_hidden_layers
    cast = 0.0 if dtype == torch.float32 else cast_parameters(config, 1 if checkpointing else layers)
    peak = counted.peak(layers, checkpointing)
    return peak.kept + peak.transient + cast * dtype.itemsize


@grid(
    design=["dense", "lory", "lory, merged again"],
    dtype=[torch.float32, torch.bfloat16],
    checkpointing=[False, True],
)
def test_the_peak_of_a_real_step_is_estimated_to_5_percent(
    design: str, dtype: torch.dtype, checkpointing: bool
) -> None:
    shape = config(design.split(",")[0])
    shape.recompute_merge = "again" in design
    model = LoriiniForCausalLM(shape).train()
    speed_up(model, SpeedConfig(activation_checkpointing=checkpointing))
    real = peak_of_step(model, dtype, inputs())
    assert estimated_peak(shape, BATCH, LENGTH, dtype, checkpointing) == pytest.approx(real, rel=0.05)


@pytest.mark.parametrize(("experts", "again"), [(1, False), (8, False), (32, True)])
def test_so_is_that_of_the_papers_shape(experts: int, again: bool) -> None:
    run = find_recipe("0.3b-dense" if experts == 1 else f"0.3b-lory-{experts}e")
    shape = run.config(32_000, 0)
    shape.num_hidden_layers, shape.recompute_merge = 3, again
    with FakeTensorMode(), KnownShapes():
        ids = torch.zeros(2, run.length, dtype=torch.long)
        arguments = {"input_ids": ids, "shift_labels": ids, "skip_logits": True}
        real = peak_of_step(LoriiniForCausalLM(shape).train(), torch.bfloat16, arguments)
    estimated = estimated_peak(shape, 2, run.length, torch.bfloat16, False)
    assert estimated == pytest.approx(real, rel=0.05)
