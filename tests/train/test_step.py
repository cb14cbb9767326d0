"""One step: its gradients are those of the whole batch, and one that is not finite changes nothing."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from loriini.data.batches.loader import BatchLoader
from loriini.model import LoriiniForCausalLM
from loriini.train import step
from loriini.train.corpora import TrainingCorpus
from loriini.train.loop import train
from loriini.train.optimizer import make_optimizer
from loriini.train.records.metrics import METRICS, read_records
from loriini.train.run_progress import RunProgress
from loriini.train.step import Batch, TrainingState, accumulate_gradients, read_batch, training_step
from runs import EOS, VOCABULARY, tiny_run
from tiny import assert_same_gradients, gradients


@pytest.mark.parametrize("micro_batch_size", [1, 3])
def test_accumulated_gradients_are_those_of_the_whole_batch(
    micro_batch_size: int, corpus: TrainingCorpus
) -> None:
    run = tiny_run(batch_size=8)
    model = LoriiniForCausalLM(run.config(VOCABULARY, EOS)).train()
    ids, _, _ = BatchLoader(corpus.instances, run.batch_size).at(0)
    losses, _ = accumulate_gradients(model, Batch(torch.from_numpy(ids)), run)
    whole = gradients(model)
    model.zero_grad()
    parts, _ = accumulate_gradients(
        model, Batch(torch.from_numpy(ids)), replace(run, micro_batch_size=micro_batch_size)
    )
    assert torch.stack(parts).tolist() == pytest.approx(torch.stack(losses).tolist(), abs=1e-6)
    assert_same_gradients(gradients(model), whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("output_z", [0.0, 0.1])
def test_the_z_loss_is_recorded_beside_the_cross_entropy(output_z: float, corpus: TrainingCorpus) -> None:
    run = tiny_run("dense")
    run = replace(run, model=replace(run.model, output_z=output_z), micro_batch_size=3)
    model = LoriiniForCausalLM(run.config(VOCABULARY, EOS)).train()
    ids = torch.from_numpy(BatchLoader(corpus.instances, run.batch_size).at(0)[0])
    with torch.no_grad():
        out = model(ids[:, :-1], shift_labels=ids[:, 1:])
    state = TrainingState(model, make_optimizer(model, run.optimizer), RunProgress())
    batches = BatchLoader(corpus.instances, run.batch_size)
    record = training_step(state, run, partial(read_batch, run, batches, torch.device("cpu")))
    assert record["loss"] == pytest.approx(out.cross_entropy.item(), rel=1e-6)
    assert record["auxiliary_loss"] == 0.0
    if output_z:
        expected = output_z * out.logits.logsumexp(-1).square().mean().item()
        assert record["output_z_loss"] == pytest.approx(expected, rel=1e-5)
    assert ("output_z_loss" in record) == bool(output_z)


def test_a_step_whose_gradient_is_not_finite_is_skipped(corpus: TrainingCorpus) -> None:
    """It moves no weight and no bias, and counts no choices."""
    run = tiny_run("deepseek-v3")
    model = LoriiniForCausalLM(run.config(VOCABULARY, EOS)).train()
    state = TrainingState(model, make_optimizer(model, run.optimizer), RunProgress())
    batches = partial(read_batch, run, BatchLoader(corpus.instances, run.batch_size), torch.device("cpu"))
    norm = training_step(state, run, batches)["gradient_norm"]
    totals = state.progress.expert_totals
    assert any(mixture.router.balance_bias.any() for mixture in model.model.mixtures)
    hook = model.lm_head.weight.register_hook(lambda gradient: gradient * math.inf)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    record = training_step(state, run, batches)
    assert record["skipped"]
    assert record["gradient_norm"] is None
    counted = {"step": 2, "consumed": 2 * 4, "tokens": 2 * 4 * 32, "skips": 1, "norms": (norm,)}
    assert state.progress == RunProgress(**counted, expert_totals=totals)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    hook.remove()
    assert not training_step(state, run, batches)["skipped"]
    assert not torch.equal(model.lm_head.weight, before["lm_head.weight"])
    assert state.progress.expert_totals != totals


def test_metrics_hold_speed_and_memory(
    corpus: TrainingCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, clock = tiny_run(steps=1), iter([100.0, 100.25])
    monkeypatch.setattr(step, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    train(run, corpus, tmp_path / "run")
    (found,) = read_records(tmp_path / "run" / METRICS)
    assert found["peak_memory_bytes"] > 1e7
    assert found["tokens_per_second"] == run.batch_size * run.length / 0.25
