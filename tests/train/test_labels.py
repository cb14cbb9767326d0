"""Training by label: one expert a label, which learns from that label's instances and nothing else."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from loriini.common.errors import InputError
from loriini.model import LoriiniForCausalLM
from loriini.model.weights.loading import load_model
from loriini.train.config import TrainConfig
from loriini.train.initial import InitialModel
from loriini.train.launch import train_run
from loriini.train.loop import train
from loriini.train.records.metrics import METRICS, read_records
from loriini.train.step import Batch, accumulate_gradients
from runs import COPIED_AT, EOS, VOCABULARY, Pattern, tiny_corpus, tiny_run
from tiny import assert_same_gradients, gradients, tiny_model

PATTERN = Pattern()
EXPERTS = 3


def instances(*ids: int) -> tuple[np.ndarray, Tensor]:
    """Ids (B,) of the pattern's instances, and their tokens (B, L+1)."""
    ids_B = np.array(ids)
    return ids_B, torch.from_numpy(PATTERN.read(ids_B))


def step_gradients(model: LoriiniForCausalLM, run: TrainConfig, *ids: int) -> dict[str, Tensor]:
    """The gradients that training takes from some instances."""
    ids_B, tokens_BL = instances(*ids)
    model.zero_grad()
    accumulate_gradients(model, Batch(tokens_BL, torch.from_numpy(PATTERN.labels(ids_B))), run)
    return gradients(model)


def mixture(run: TrainConfig) -> LoriiniForCausalLM:
    """A mixture of different experts."""
    return LoriiniForCausalLM(run.config(VOCABULARY, EOS, label_names=PATTERN.label_names)).train()


def alone(model: LoriiniForCausalLM, run: TrainConfig, label: int) -> LoriiniForCausalLM:
    """The dense model of one label's expert."""
    dense = LoriiniForCausalLM(run.config(VOCABULARY, EOS, num_experts=1)).train()
    dense.load_state_dict(of_expert(model.state_dict(), label))
    return dense


def of_expert(tensors: dict[str, Tensor], label: int) -> dict[str, Tensor]:
    """A mixture's tensors with those of one expert only."""
    return {
        name: tensor[label : label + 1] if ".experts." in name else tensor for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("label", range(EXPERTS))
def test_a_labels_batch_trains_its_expert_as_if_it_were_alone(label: int) -> None:
    run = tiny_run("label")
    model = mixture(run)
    ids = (label, label + 3, label + 9)
    found = step_gradients(model, run, *ids)
    assert_same_gradients(of_expert(found, label), step_gradients(alone(model, run, label), run, *ids))
    others = [i for i in range(EXPERTS) if i != label]
    assert not any(gradient[others].any() for name, gradient in found.items() if ".experts." in name)


@pytest.mark.parametrize("micro_batch_size", [0, 3])
def test_a_mixed_batch_gives_each_expert_its_labels_share(micro_batch_size: int) -> None:
    run = tiny_run("label", micro_batch_size=micro_batch_size)
    model = mixture(run)
    mixed = step_gradients(model, run, 0, 4, 3, 8)  # of labels 0, 1, 0, 2
    for label, ids in enumerate(((0, 3), (4,), (8,))):
        by_itself = step_gradients(model, run, *ids)
        expected = {
            name: gradient[label] * len(ids) / 4
            for name, gradient in by_itself.items()
            if ".experts." in name
        }
        found = {name: gradient[label] for name, gradient in mixed.items() if ".experts." in name}
        assert_same_gradients(found, expected, rtol=1e-4, atol=1e-7)


def test_a_run_trains_every_expert_and_remembers_the_labels(tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(tiny_run("label", per_expert_every=1), tiny_corpus(tmp_path / "tokenizer"), out)
    model, _ = load_model(out)
    assert model.config.label_names == ["one", "two", "three"]
    experts = model.model.mixtures[0].experts.down_proj
    assert not any(torch.equal(experts[i], experts[i - 1]) for i in range(EXPERTS))
    mixed = [m for m in read_records(out / METRICS) if m["step"] > COPIED_AT]
    assert all(sum(m["mean_gates"][0]) == pytest.approx(1, abs=1e-3) for m in mixed)


def test_more_labels_than_experts_are_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, run = tiny_corpus(tmp_path / "tokenizer"), tiny_run("label")
    few = replace(run, model=replace(run.model, num_experts=2))
    monkeypatch.setattr("loriini.train.preflight.read_corpora", lambda paths, weights: corpus)
    with pytest.raises(InputError, match="num_experts is 2 and there are 3 labels: one, two, three"):
        train_run(few, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_experts_of_other_labels_are_refused(tmp_path: Path) -> None:
    tiny_model("label", label_names=["de", "en"]).save_pretrained(tmp_path)
    initial = InitialModel(str(tmp_path))
    initial.check_labels(["de", "en"])
    initial.check_labels([])
    with pytest.raises(InputError, match="has experts for de, en, but the corpus has en, fr; prepare it"):
        initial.check_labels(["en", "fr"])
