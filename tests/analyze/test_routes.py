"""Routes of real, tiny models against a loop over texts, and information against hand values."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from loriini import LoriiniForCausalLM
from loriini.analyze.routes import Routes, _information, mutual_information, routes_by_domain
from loriini.common.errors import InputError
from loriini.evaluate.heldout import HeldOut
from tiny import random_ids, tiny_model


def held(texts: list[Tensor]) -> HeldOut:
    """Held-out text of which these are routed: the last token of an instance is not."""
    return HeldOut([torch.cat([ids, ids[:1]]) for ids in texts], 1.0)


def sums_by_hand(model: LoriiniForCausalLM, texts: list[Tensor]) -> dict[str, np.ndarray]:
    """Choices, mean gates and confidence entropy of texts that are routed one at a time, for each layer."""
    gates, entropies = [], []
    for ids in texts:
        routings = model(ids[None]).routings
        gates.append(torch.stack([r.gates for r in routings], dim=1))
        p = torch.stack([r.logits.softmax(-1) for r in routings], dim=1)
        entropies.append(-(p * p.log()).sum(-1))
    gates_ULE, entropy_UL = torch.cat(gates).double(), torch.cat(entropies).double()
    soft = model.config.routing.selection == "all"
    return {
        "choices": (gates_ULE if soft else gates_ULE > 0).double().sum(0).numpy(),
        "mean_gates": gates_ULE.mean(0).numpy(),
        "confidence_entropy": entropy_UL.mean(0).numpy(),
        "units": np.array(len(gates_ULE)),
    }


@pytest.mark.parametrize("design", ["lory", "mixtral", "sequence-top2", "aoe-top-p", "lory-top2"])
@torch.no_grad()
def test_texts_of_any_length_are_routed_as_one_at_a_time(design: str) -> None:
    model = tiny_model(design)
    texts = {"a": [random_ids(1, n)[0] for n in (9, 3, 14, 1)], "b": [random_ids(1, 6)[0]]}
    heldout = {name: held(of) for name, of in texts.items()}
    routes = routes_by_domain(model.train(), heldout, "fp32", batch_size=3)
    assert model.training
    assert routes.domains == ("a", "b")
    assert routes.sequences.tolist() == [4, 1]
    for i, name in enumerate(routes.domains):
        for field, expected in sums_by_hand(model.eval(), texts[name]).items():
            found = getattr(routes, field)
            found = found[i] if field == "units" else found[:, i]
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6, err_msg=field)


def test_a_share_of_choices_is_no_mean_weight() -> None:
    """Of two experts that each unit chooses, one gets most of the weight."""
    gates = np.array([[[0.9, 0.1, 0.0], [0.9, 0.0, 0.1]]])
    choices = np.array([[[10, 10, 0], [30, 0, 30]]])
    routes = made(choices=choices, mean_gates=gates, units=np.array([10, 30]))
    assert routes.choice_shares.tolist() == [[[0.5, 0.5, 0], [0.5, 0, 0.5]]]
    assert routes.expert_load.tolist() == [[0.5, 0.125, 0.375]]
    assert routes.load_range.tolist() == [0.375]
    assert routes.experts_per_unit.tolist() == [2]
    assert np.exp(routes.load_entropy[0]) == pytest.approx(2.6494, abs=1e-4)
    assert routes.choice_shares.argmax(-1).tolist() == [[0, 0]]
    assert routes.most_bits[0] == pytest.approx(np.log2(3 / 2))  # the second choice is another expert
    assert made().most_bits.tolist() == [1]  # of two domains


def made(**changes: np.ndarray) -> Routes:
    """Routes of one layer, two domains, three experts; 7 and 2 units."""
    values = {
        "choices": np.array([[[7.0, 0, 0], [0, 0, 2.0]]]),
        "mean_gates": np.array([[[1.0, 0, 0], [0, 0, 1.0]]]),
        "confidence_entropy": np.zeros((1, 2)),
        "domain_bits": np.ones(1),
        "chance_bits": np.zeros(1),
        "units": np.array([7, 2]),
        "sequences": np.array([3, 2]),
    }
    return Routes(**{**values, **changes}, domains=("日本", "b"), field="topic")


def test_agreement_is_1_where_the_domain_decides_and_0_by_chance() -> None:
    assert made().domain_agreement.tolist() == pytest.approx([1])
    assert made(chance_bits=np.ones(1)).domain_agreement.tolist() == [0]
    every = np.array([[[7.0] * 3, [2.0] * 3]])  # every unit every expert
    alone = made(domain_bits=np.zeros(1), choices=every)
    assert alone.most_bits.tolist() == alone.domain_agreement.tolist() == [0]


def test_texts_that_do_not_differ_agree_with_no_domain() -> None:
    """Of few texts chance alone gives bits; the permutations take them off."""
    model, rng = tiny_model("sequence-top1"), torch.Generator().manual_seed(0)
    texts = [torch.randint(3, 61, (6,), generator=rng) for _ in range(24)]
    routes = routes_by_domain(model, {"a": held(texts[:12]), "b": held(texts[12:])}, "fp32")
    assert (routes.chance_bits > 0.02).all()
    assert np.abs(routes.domain_agreement).max() < 0.25
    labels = tiny_model("label", label_names=["a", "b"])
    routes = routes_by_domain(labels, {"b": held(texts[:12]), "a": held(texts[12:])}, "fp32")
    assert routes.domain_agreement.min() > 0.99


@pytest.mark.parametrize("alike", [False, True], ids=["sequences differ", "documents differ"])
@pytest.mark.parametrize(
    ("lengths", "documents"), [((20, 1), (6, 60)), ((7, 15, 2, 1), (8, 4, 30, 50))], ids=["two", "four"]
)
def test_documents_of_any_length_agree_by_chance(
    alike: bool, lengths: tuple[int, ...], documents: tuple[int, ...]
) -> None:
    """Choices that have nothing to do with the domain, alike in a document or not, are at chance."""
    rng = np.random.default_rng(0)
    begins = [np.repeat(np.arange(n), length) for n, length in zip(documents, lengths, strict=True)]
    found = []
    for _ in range(20):
        chosen = [rng.dirichlet(np.full(8, 0.1), len(own)) for own in begins]
        shares = [of[own] if alike else of for of, own in zip(chosen, begins, strict=True)]
        bits, chance = _information(np.concatenate(shares)[:, None], [own.tolist() for own in begins])
        assert chance[0] > 0.02
        found.append((bits - chance)[0])
    assert abs(np.mean(found)) < 2.5 * np.std(found) / np.sqrt(len(found))


def test_the_documents_of_a_domain_count_alike() -> None:
    """Of two documents a domain, one long, each is half of the domain, wherever its sequences stand."""
    of = np.eye(2)[[0, 1, 0, 0, 1, 1]]  # domain a: a long document of expert 0, a short one of expert 1
    bits, chance = _information(of[:, None], [[5, 8, 5, 5], [1, 1]])
    assert bits.tolist() == pytest.approx(mutual_information([[[1, 1], [0, 2]]]).tolist())
    assert chance[0] > 0


@torch.no_grad()
def test_a_random_router_agrees_with_no_domain() -> None:
    """Of every sequence it is drawn anew; one draw for all would send each domain's words to experts."""
    model = tiny_model("random", num_hidden_layers=1)
    texts = {name: list(random_ids(60, 12) % 4 + first) for name, first in (("a", 0), ("b", 40))}
    routes = routes_by_domain(model, {name: held(of) for name, of in texts.items()}, "fp32")
    assert abs(routes.domain_agreement).max() < 0.1
    one_draw = np.stack(
        [model(torch.stack(ids)).routings[0].gates.double().mean(0) for ids in texts.values()]
    )
    shares = routes.choices[0] / routes.choices[0].sum(-1, keepdims=True)
    assert abs(shares[0] - shares[1]).max() < 0.1 < abs(one_draw[0] - one_draw[1]).max()


def test_a_domain_is_routed_to_the_expert_of_its_label() -> None:
    model = tiny_model("label", label_names=["code", "prose"])
    routes = routes_by_domain(
        model, {name: HeldOut(random_ids(), 1.0) for name in ("prose", "code")}, "fp32", batch_size=2
    )
    assert routes.domains == ("prose", "code")
    assert routes.mean_gates.tolist() == [[[0, 1, 0, 0], [1, 0, 0, 0]]] * 2
    assert routes.choices.tolist() == [[[0, 3, 0, 0], [3, 0, 0, 0]]] * 2


def test_routes_come_back_as_they_were_saved(tmp_path: Path) -> None:
    routes = made()
    routes.save(tmp_path / "routes.npz")
    loaded = Routes.load(tmp_path / "routes.npz")
    assert json.dumps(loaded.to_dict()) == json.dumps(routes.to_dict())
    assert (loaded.domains, loaded.field) == (("日本", "b"), "topic")
    assert {path.name for path in tmp_path.iterdir()} == {"routes.npz", "routes.json"}
    (layer,) = json.loads((tmp_path / "routes.json").read_text())["layers"]
    assert layer["choice_shares"] == layer["mean_gates"] == {"日本": [1, 0, 0], "b": [0, 0, 1]}
    assert layer["load"] == pytest.approx([7 / 9, 0, 2 / 9])
    assert layer["domain_bits"] == pytest.approx(1)


def test_the_largest_domains_are_those_of_most_units() -> None:
    routes = made(units=np.array([2, 7])).largest(1)
    assert (routes.domains, routes.units.tolist()) == (("b",), [7])
    assert routes.choices.tolist() == [[[0, 0, 2]]]
    assert made().largest(2).choices.tolist() == made().choices.tolist()


@pytest.mark.parametrize("left", [0, 100], ids=["empty", "cut"])
def test_a_damaged_file_is_wrong_input(tmp_path: Path, left: int) -> None:
    path = tmp_path / "routes.npz"
    made().save(path)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(InputError, match=r"routes\.npz: not readable routes .*; run loriini analyze again"):
        Routes.load(path)


@pytest.mark.parametrize(
    ("counts", "bits"),
    [
        ([[5, 0], [0, 5]], 1),
        ([[1, 0], [0, 3]], 0.25 * 2 + 0.75 * np.log2(4 / 3)),
        ([[3, 3], [9, 9]], 0),
        ([[3, 1], [1, 3]], 1 + 0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)),
        ([[0, 0], [5, 5]], 0),
        ([[0, 0], [0, 0]], 0),
    ],
    ids=["separate", "unequal domains", "alike", "partly", "one never routed", "nothing routed"],
)
def test_mutual_information_by_hand(counts: list[list[float]], bits: float) -> None:
    assert mutual_information([counts]).tolist() == pytest.approx([bits])
