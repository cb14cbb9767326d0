"""Training with `document_mask`: the documents of an instance are as apart as if each were a row."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from loriini.batches.dataset import InstanceDataset
from loriini.batches.loader import BatchLoader, Position
from loriini.model import LoriiniForCausalLM
from loriini.train.checkpoint import RunProgress
from loriini.train.loop import Batch, TrainingState, accumulate_gradients, read_batch, training_step
from loriini.train.optimizer import make_optimizer
from loriini.train.run import Run
from runs import EOS, VOCABULARY, Pattern, metrics, tiny_run, trained
from tiny import assert_same_gradients, gradients

DESIGNS = ["lory", "smear", "mixtral", "aoe", "segment-then-token", "dense"]


def loss_of_documents(model: LoriiniForCausalLM, tokens_BL: Tensor, positions_BL: Tensor) -> Tensor:
    """The mean cross-entropy, one document at a time."""
    losses = []
    for tokens_L, positions_L in zip(tokens_BL, positions_BL[:, :-1], strict=True):
        starts = (positions_L == 0).nonzero().flatten().tolist()
        for first, end in zip(starts, [*starts[1:], len(positions_L)], strict=True):
            logits = model(tokens_L[None, first:end]).logits[0]
            losses.append(cross_entropy(logits, tokens_L[first + 1 : end + 1], reduction="none"))
    return torch.cat(losses).mean()


@pytest.mark.parametrize("design", DESIGNS)
def test_a_step_is_that_of_the_documents_alone(design: str) -> None:
    run = without_losses(tiny_run(design, document_mask=True, micro_batch_size=2))
    model = LoriiniForCausalLM(run.config(VOCABULARY, EOS)).train()
    batches = BatchLoader(Pattern(), run.batch_size)
    tokens, ids, _ = batches.at(Position())
    tokens_BL, positions_BL = torch.from_numpy(tokens), torch.from_numpy(Pattern().positions(ids))
    expected = loss_of_documents(model, tokens_BL, positions_BL)
    expected.backward()
    wanted = gradients(model)
    model.zero_grad()
    accumulate_gradients(model, Batch(tokens_BL, positions_BL=positions_BL), run)
    assert_same_gradients(gradients(model), wanted, rtol=1e-3, atol=1e-5)

    model.zero_grad()
    state = TrainingState(model, make_optimizer(model, run.optimizer), progress=RunProgress())
    assert training_step(state, run, partial(read_batch, run, batches))["loss"] == pytest.approx(
        expected.item(), abs=1e-5
    )


def without_losses(run: Run) -> Run:
    """The run without auxiliary losses, which are of all units of a batch together."""
    return replace(run, routing=replace(run.routing, load_balance=0.0))


def test_a_run_is_masked_from_its_first_step_to_its_last(tmp_path: Path) -> None:
    masked, plain = (trained(tiny_run(document_mask=m), tmp_path / str(m)) for m in (True, False))
    differences = [a["loss"] != b["loss"] for a, b in zip(metrics(masked), metrics(plain), strict=True)]
    assert all(differences)


def test_a_data_set_for_other_trainers_holds_positions() -> None:
    example = InstanceDataset(Pattern(), length=16, document_mask=True)[3]
    assert example["position_ids"].tolist() == [*range(10), *range(6)]
