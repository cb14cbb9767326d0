"""Mean gates of a real, tiny model against those of one call, and information against hand values."""

from pathlib import Path

import numpy as np
import pytest
import torch

from loriini import LoriiniConfig, LoriiniForCausalLM, RoutingConfig
from loriini.analyze.routes import Routes, mutual_information, routes_by_domain, top_experts
from loriini.errors import InputError
from tiny import random_ids, tiny_model


@pytest.fixture
def model() -> LoriiniForCausalLM:
    return LoriiniForCausalLM(
        LoriiniConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_experts=4,
            initializer_range=0.3,
            routing=RoutingConfig(segment_length=8),
        )
    )


def test_means_are_over_all_units_whatever_the_batches(model: LoriiniForCausalLM) -> None:
    ids = torch.randint(64, (5, 21))
    at_once = torch.stack([routing.gates.mean(0) for routing in model.eval()(ids[:, :-1]).routings])
    model.train()
    routes = routes_by_domain(model, {"a": ids, "none": ids[:0], "b": ids[:2]}, batch_size=2)
    assert model.training
    assert routes.domains == ("a", "b")
    assert routes.units.tolist() == [15, 6]
    assert routes.mean_gates.shape == (2, 2, 4)
    np.testing.assert_allclose(routes.mean_gates[:, 0], at_once.detach().numpy(), atol=0.01)
    np.testing.assert_allclose(routes.mean_gates.sum(-1), 1, rtol=1e-5)


def test_a_domain_is_routed_to_the_expert_of_its_label() -> None:
    model = tiny_model("label", label_names=["code", "prose"])
    routes = routes_by_domain(model, {"prose": random_ids(), "code": random_ids()}, batch_size=2)
    assert routes.domains == ("prose", "code")
    assert routes.mean_gates.tolist() == [[[0, 1, 0, 0], [1, 0, 0, 0]]] * 2


def test_no_instances_are_refused(model: LoriiniForCausalLM) -> None:
    with pytest.raises(ValueError, match="no instances"):
        routes_by_domain(model, {"a": torch.zeros(0, 9, dtype=torch.long)})


def test_routes_come_back_as_they_were_saved(tmp_path: Path) -> None:
    routes = Routes(np.full((2, 1, 4), 0.25), ("日本",), np.array([7]))
    routes.save(tmp_path / "routes.npz")
    loaded = Routes.load(tmp_path / "routes.npz")
    assert loaded.domains == routes.domains
    assert np.array_equal(loaded.mean_gates, routes.mean_gates)
    assert loaded.units.tolist() == [7]
    assert [path.name for path in tmp_path.iterdir()] == ["routes.npz"]


def test_a_file_of_something_else_is_wrong_input(tmp_path: Path) -> None:
    (tmp_path / "routes.npz").write_text("not routes")
    with pytest.raises(InputError, match=r"routes\.npz"):
        Routes.load(tmp_path / "routes.npz")


@pytest.mark.parametrize(
    ("gates", "units", "bits"),
    [
        ([[1, 0], [0, 1]], [5, 5], 1),
        ([[1, 0], [0, 1]], [1, 3], 0.25 * 2 + 0.75 * np.log2(4 / 3)),
        ([[0.5, 0.5], [0.5, 0.5]], [5, 9], 0),
        ([[2, 0], [0, 3]], [5, 5], 1),
        ([[0.75, 0.25], [0.25, 0.75]], [4, 4], 1 + 0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)),
        ([[0, 0], [0.5, 0.5]], [5, 5], 0),
    ],
    ids=["separate", "unequal domains", "alike", "gates beyond 1", "partly", "never routed"],
)
def test_mutual_information_by_hand(gates: list[list[float]], units: list[int], bits: float) -> None:
    assert mutual_information([gates], units).tolist() == pytest.approx([bits])


def test_top_experts() -> None:
    assert top_experts([[[0.1, 0.9], [0.6, 0.4]]]).tolist() == [[1, 0]]
