"""Every selection and every convention of gates against plain Python."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from loriini import RoutingConfig
from loriini.routing.selection import GATES, SELECTIONS


def logits_of(seed: int, units: int, experts: int) -> Tensor:
    return 2 * torch.randn(units, experts, generator=torch.Generator().manual_seed(seed))


LOGITS = st.builds(logits_of, st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 8))


def softmax(row: list[float]) -> list[float]:
    exponentials = [math.exp(x - max(row)) for x in row]
    return [x / sum(exponentials) for x in exponentials]


def normalized(weights: list[float]) -> list[float]:
    return [w / sum(weights) for w in weights]


def as_sets(mask: Tensor) -> list[set[int]]:
    return [{i for i, chosen in enumerate(row) if chosen} for row in mask.tolist()]


def token_choice(**settings: object) -> RoutingConfig:
    return RoutingConfig(unit="token", combination="outputs", **settings)


@given(LOGITS, st.integers(1, 10), st.booleans())
def test_top_k(logits: Tensor, k: int, training: bool) -> None:
    mask = SELECTIONS["top_k"](logits, token_choice(selection="top_k", top_k=k), None, training)
    for row, chosen in zip(logits.tolist(), as_sets(mask), strict=True):
        assert chosen == set(sorted(range(len(row)), key=lambda i: -row[i])[:k])


@given(LOGITS, st.floats(0.01, 1.0), st.booleans())
def test_top_p(logits: Tensor, p: float, training: bool) -> None:
    expected = []
    for row in logits.tolist():
        weights, reached, chosen = softmax(row), 0.0, set()
        for i in sorted(range(len(row)), key=lambda i: -row[i]):
            assume(abs(reached - p) > 1e-5)
            if reached < p:
                chosen.add(i)
            reached += weights[i]
        expected.append(chosen)
    mask = SELECTIONS["top_p"](logits, token_choice(selection="top_p", top_p=p), None, training)
    assert as_sets(mask) == expected
    assert all(expected)


@given(LOGITS, st.booleans())
def test_positive(logits: Tensor, training: bool) -> None:
    mask = SELECTIONS["positive"](logits, token_choice(selection="positive"), None, training)
    expected = [{i for i, x in enumerate(row) if x > 0} for row in logits.tolist()]
    assert as_sets(mask) == expected


@given(LOGITS, st.floats(0.1, 8.0), st.sampled_from(["linear", "activation_norm"]), st.data())
def test_expert_choice_in_training(
    logits: Tensor, capacity_factor: float, scorer: str, data: st.DataObject
) -> None:
    units, experts = logits.shape
    valid = data.draw(st.none() | st.lists(st.booleans(), min_size=units, max_size=units))
    real = [n for n in range(units) if valid is None or valid[n]]
    capacity = min(len(real), max(1, round(len(real) * capacity_factor / experts)))
    config = token_choice(selection="expert_choice", capacity_factor=capacity_factor, scorer=scorer)
    mask = SELECTIONS["expert_choice"](logits, config, None if valid is None else torch.tensor(valid), True)
    scores = [row if scorer == "activation_norm" else softmax(row) for row in logits.tolist()]
    for i, chosen in enumerate(as_sets(mask.T)):
        best = sorted(real, key=lambda n: -scores[n][i])[:capacity]
        assert chosen == set(best)


@given(LOGITS, st.floats(0.1, 8.0))
def test_expert_choice_at_evaluation_is_top_k_of_each_unit(logits: Tensor, capacity_factor: float) -> None:
    config = token_choice(selection="expert_choice", capacity_factor=capacity_factor)
    k = max(1, round(capacity_factor))
    expected = SELECTIONS["top_k"](logits, token_choice(selection="top_k", top_k=k), None, False)
    assert torch.equal(SELECTIONS["expert_choice"](logits, config, None, False), expected)


@pytest.mark.parametrize("units", [2, 5, 64, 5000])
def test_among_equals_the_lower_expert_and_the_earlier_unit_are_taken(units: int) -> None:
    equal = torch.zeros(units, 16)
    three = token_choice(selection="top_k", top_k=3)
    assert SELECTIONS["top_k"](equal, three, None, True).nonzero()[:, 1].tolist() == [0, 1, 2] * units
    half = token_choice(selection="top_p", top_p=0.5)
    assert SELECTIONS["top_p"](equal, half, None, True).nonzero()[:, 1].tolist() == [*range(8)] * units
    choice = token_choice(selection="expert_choice", capacity_factor=8)
    half_of_units = SELECTIONS["expert_choice"](equal, choice, None, True)
    assert torch.equal(half_of_units, (torch.arange(units) < round(units / 2))[:, None].expand(-1, 16))


CLOSE = token_choice(jitter=0.25)


def close(own: float, other: float) -> bool:
    return 0 <= own - other <= 0.5 * max(own, abs(other))


@given(LOGITS, st.integers(0, 2**32))
def test_gates(logits: Tensor, seed: int) -> None:
    mask = torch.rand(logits.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    gates = {name: gate(logits, mask, CLOSE).tolist() for name, gate in GATES.items()}
    for n, (row, chosen) in enumerate(zip(logits.tolist(), as_sets(mask), strict=True)):
        order, p = sorted(chosen), softmax(row)
        expected = {
            "softmax_all": [p[i] for i in order],
            "softmax_selected": softmax([row[i] for i in order]) if order else [],
            "softmax_twice": softmax([p[i] for i in order]) if order else [],
            "uniform": [1 / len(order) for _ in order],
            "sigmoid": normalized([1 / (1 + math.exp(-row[i])) for i in order]),
            "relu": [max(row[i], 0.0) for i in order],
            "sparse_mixer": [1 / sum(math.exp(x - row[i]) for x in row if close(row[i], x)) for i in order],
        }
        for name, weights in expected.items():
            by_expert = dict(zip(order, weights, strict=True))
            assert gates[name][n] == pytest.approx([by_expert.get(i, 0.0) for i in range(len(row))], abs=1e-5)


@pytest.mark.parametrize("name", GATES)
def test_gates_of_a_unit_without_experts_are_zero_with_finite_gradients(name: str) -> None:
    logits = torch.randn(2, 3, requires_grad=True)
    mask = torch.tensor([[False, False, False], [True, False, True]])
    gates = GATES[name](logits, mask, CLOSE)
    assert torch.equal(gates[0], torch.zeros(3))
    if gates.requires_grad:
        gates.sum().backward()
        assert torch.isfinite(logits.grad).all()


def test_sigmoid_gates_of_very_low_logits_do_not_underflow() -> None:
    logits = torch.tensor([[-200.0, -201.0, 0.0]], requires_grad=True)
    gates = GATES["sigmoid"](logits, torch.tensor([[True, True, False]]), CLOSE)
    torch.testing.assert_close(gates, torch.tensor([[*softmax([-200.0, -201.0]), 0.0]]))
    gates[0, 0].backward()
    slope = float((gates[0, 0] * gates[0, 1]).detach())
    torch.testing.assert_close(logits.grad, torch.tensor([[slope, -slope, 0.0]]))
