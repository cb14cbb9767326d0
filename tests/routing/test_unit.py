"""Units against plain Python: which tokens make a unit, and whose mean routes it."""

from dataclasses import replace

import pytest
import torch
from accelerate.utils import send_to_device
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from loriini import DESIGNS, RoutingConfig
from loriini.routing.pooling import routing_states
from loriini.routing.router import Router
from loriini.routing.scorer import RouterSettings
from loriini.routing.unit import RoutingContext, unit_layout

D = 3


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[list[bool]], int, int]:
    """(real tokens of each row's history, tokens of it in the cache, T); padding at either side or none."""
    length = draw(st.integers(1, 14))
    past = draw(st.integers(0, length - 1))
    rows, padded = [], draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        padding = draw(st.integers(0, length - 1)) if padded else 0
        left = draw(st.integers(0, padding))
        rows.append([left <= i < length - (padding - left) for i in range(length)])
    return rows, past, draw(st.integers(1, 5))


def context_of(rows: list[list[bool]], past: int, **more: object) -> RoutingContext:
    counted = torch.tensor(rows).long()
    positions = (counted.cumsum(1) - 1).masked_fill(counted == 0, -1)
    padded = not bool(counted.all())
    return RoutingContext(len(rows), len(rows[0]) - past, past, positions if padded else None, **more)


@given(calls())
def test_tokens_fall_into_segments_by_their_place_in_the_sequence(
    case: tuple[list[list[bool]], int, int],
) -> None:
    rows, past, T = case
    config = RoutingConfig(segment_length=T)
    context = context_of(rows, past)
    layout = unit_layout(config, context)
    x_BLD = torch.randn(len(rows), context.length, D)
    grouped, segments = layout.group(x_BLD), layout.segments_BU
    if layout.units > 1:
        assert layout.slots_per_unit == T
    elif past == 0:
        assert layout.slots_per_unit == min(T, context.length)  # whatever its rows: processes agree on it
    elif context.new_positions().amax() >= 0:
        assert grouped[:, 0, -1].any()  # a unit alone has no slots that no row needs
    for b, row in enumerate(rows):
        by_segment: dict[int, list[Tensor]] = {}
        for i, real in enumerate(row):
            if real and i >= past:
                by_segment.setdefault(sum(row[:i]) // T, []).append(x_BLD[b, i - past])
        for u, segment in enumerate(segments[b].tolist()):
            expected = by_segment.pop(segment, [])
            if layout.valid_BU is not None:
                assert bool(layout.valid_BU[b, u]) == bool(expected)
                if not expected:
                    continue
            there = [x for x in grouped[b, u] if x.any()]
            assert [x.tolist() for x in there] == [x.tolist() for x in expected]
        assert not by_segment
    real_BL = torch.tensor(rows)[:, past:, None]
    assert torch.equal(layout.ungroup(grouped, context.length) * real_BL, x_BLD * real_BL)


@pytest.mark.parametrize("unit", ["segment", "prefix"])
@given(case=calls())
def test_segments_are_routed_by_the_one_before(unit: str, case: tuple[list[list[bool]], int, int]) -> None:
    rows, past, T = case
    config = RoutingConfig(unit=unit, segment_length=T)
    context = context_of(rows, past)
    layout = unit_layout(config, context)
    states = torch.randn(len(rows), len(rows[0]), D, dtype=torch.float64)
    routed_by = routing_states(states, context, config, layout)
    for b, row in enumerate(rows):
        tokens = states[b][torch.tensor(row)]
        for u, segment in enumerate(layout.segments_BU[b].tolist()):
            if layout.valid_BU is not None and not layout.valid_BU[b, u]:
                continue
            source = 0 if unit == "prefix" else max(segment - 1, 0)
            torch.testing.assert_close(routed_by[b, u], tokens[source * T : (source + 1) * T].mean(0))


@given(case=calls())
def test_tokens_may_be_routed_by_themselves_and_the_segment_before(
    case: tuple[list[list[bool]], int, int],
) -> None:
    rows, past, T = case
    config = replace(DESIGNS["segment-then-token"], segment_length=T)
    context = context_of(rows, past)
    states = torch.randn(len(rows), len(rows[0]), D, dtype=torch.float64)
    tokens, before = routing_states(states, context, config, unit_layout(config, context)).split(D, dim=-1)
    assert torch.equal(tokens, states[:, past:])
    for b, row in enumerate(rows):
        real = states[b][torch.tensor(row)]
        for i in range(past, len(row)):
            start = sum(row[:i]) // T * T
            expected = real[start - T : start].mean(0) if start else torch.zeros(D, dtype=torch.float64)
            if row[i]:
                torch.testing.assert_close(before[b, i - past], expected)


@given(calls(), st.integers(1, 14))
def test_a_prompt_is_pooled_without_its_padding(case: tuple[list[list[bool]], int, int], prompt: int) -> None:
    rows, _, T = case
    lengths = torch.tensor([min(prompt, sum(row)) for row in rows])
    context = context_of(rows, 0, prompt_lengths_B=lengths)
    config = RoutingConfig(segment_length=T)
    states = torch.randn(len(rows), len(rows[0]), D, dtype=torch.float64)
    pooled = routing_states(states, context, config, unit_layout(config, context))
    assert pooled.shape == (len(rows), 1, D)
    for b, row in enumerate(rows):
        torch.testing.assert_close(pooled[b, 0], states[b][torch.tensor(row)][: lengths[b]].mean(0))


def test_in_segment_mode_the_first_segment_is_routed_by_the_prompt_in_it() -> None:
    config = RoutingConfig(segment_length=4)
    states = torch.randn(3, 10, D, dtype=torch.float64)
    prompts_B = torch.tensor([1, 3, 9])
    context = RoutingContext(3, 10, prompt_lengths_B=prompts_B, inference_routing="segment")
    routed_by = routing_states(states, context, config, unit_layout(config, context))
    for b, counted in enumerate([1, 3, 4]):
        torch.testing.assert_close(routed_by[b, 0], states[b, :counted].mean(0))
        torch.testing.assert_close(routed_by[b, 1], states[b, :4].mean(0))
        torch.testing.assert_close(routed_by[b, 2], states[b, 4:8].mean(0))


@pytest.mark.parametrize("first_segment", ["self", "skip_loss", "uniform"])
def test_no_gradient_flows_through_the_first_segments_gates(first_segment: str) -> None:
    config = RoutingConfig(segment_length=4, first_segment=first_segment)
    router = Router(RouterSettings(config, D, 4))
    torch.nn.init.normal_(router.scorer.weight)
    context = RoutingContext(2, 11)
    routing = router(torch.randn(2, 3, D), context, config, unit_layout(config, context))
    gates_BUE = routing.gates.view(2, 3, 4)
    weights = torch.randn(2, 4)
    (first,) = torch.autograd.grad((gates_BUE[:, 0] * weights).sum(), router.scorer.weight, retain_graph=True)
    (second,) = torch.autograd.grad((gates_BUE[:, 1] * weights).sum(), router.scorer.weight)
    assert not first.any()
    assert second.any()
    assert bool((gates_BUE[:, 0] == 0.25).all()) == (first_segment == "uniform")
    assert not (gates_BUE[:, 1] == 0.25).any()


def test_what_routing_knows_of_a_call_moves_to_another_device() -> None:
    """As accelerate moves the arguments of a layer that is elsewhere."""
    context = replace(
        context_of([[True, True, False]], 0), device=torch.device("cpu"), router_seed=torch.tensor(3)
    )
    layout = unit_layout(DESIGNS["ec-token"], context)
    moved, there = send_to_device({"context": context, "layout": layout}, "meta").values()
    assert (moved.device.type, moved.positions_BH.device.type, moved.router_seed.device.type) == ("meta",) * 3
    assert there.valid_BU.device.type == "meta"
    assert (moved.length, there.units) == (context.length, layout.units)
    assert replace(context, positions_BH=None, router_seed=0, device=None).to("meta").positions_BH is None
