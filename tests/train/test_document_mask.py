"""Training with `document_mask`: the documents of an instance are as apart as if each were a row."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from loriini import DESIGNS, RoutingConfig
from loriini.data.batches.loader import BatchLoader
from loriini.model import LoriiniForCausalLM
from loriini.parallel.mesh import ParallelConfig, join_mesh
from loriini.parallel.sharding import build_model, full_tensor
from loriini.train.config import TrainConfig
from loriini.train.optimizer import make_optimizer
from loriini.train.run_progress import RunProgress
from loriini.train.step import Batch, TrainingState, accumulate_gradients, read_batch, training_step
from runs import EOS, VOCABULARY, Pattern, tiny_run
from tiny import assert_same_gradients, gradients
from together import in_one_group, job

ALONE = ["lory", "smear", "mixtral", "aoe", "segment-then-token", "dense"]


def loss_of_documents(model: LoriiniForCausalLM, tokens_BL: Tensor, positions_BL: Tensor) -> Tensor:
    """The mean cross-entropy, one document at a time."""
    losses = []
    for tokens_L, positions_L in zip(tokens_BL, positions_BL[:, :-1], strict=True):
        starts = (positions_L == 0).nonzero().flatten().tolist()
        for first, end in zip(starts, [*starts[1:], len(positions_L)], strict=True):
            logits = model(tokens_L[None, first:end]).logits[0]
            losses.append(cross_entropy(logits, tokens_L[first + 1 : end + 1], reduction="none"))
    return torch.cat(losses).mean()


@pytest.mark.parametrize("design", ALONE)
def test_a_step_is_that_of_the_documents_alone(design: str) -> None:
    run = without_losses(tiny_run(design, document_mask=True, micro_batch_size=2))
    model = LoriiniForCausalLM(run.config(VOCABULARY, EOS)).train()
    batches = BatchLoader(Pattern(), run.batch_size)
    tokens, ids, _ = batches.at(0)
    tokens_BL, positions_BL = torch.from_numpy(tokens), torch.from_numpy(Pattern().positions(ids))
    expected = loss_of_documents(model, tokens_BL, positions_BL)
    expected.backward()
    wanted = gradients(model)
    model.zero_grad()
    accumulate_gradients(model, Batch(tokens_BL, positions_BL=positions_BL), run)
    assert_same_gradients(gradients(model), wanted, rtol=1e-3, atol=1e-5)

    model.zero_grad()
    state = TrainingState(model, make_optimizer(model, run.optimizer), progress=RunProgress())
    assert training_step(state, run, partial(read_batch, run, batches, torch.device("cpu")))[
        "loss"
    ] == pytest.approx(expected.item(), abs=1e-5)


SKIPPING = replace(
    tiny_run("lory", document_mask=True, batch_size=6, length=20),
    routing=RoutingConfig(segment_length=8, first_segment="skip_loss", router_z=0.1, confidence_entropy=0.1),
    model=replace(tiny_run().model, output_z=0.1),
)
"""Instances have different numbers of units, and of targets, since segment 1 of every document has none."""

COMPARING = replace(SKIPPING, routing=replace(DESIGNS["sequence-top1"], load_balance=0.1))
"""A loss compares the documents of all processes; instances have different numbers of documents."""


def packed_batch() -> Batch:
    source = Pattern(length=SKIPPING.length)
    tokens, ids, _ = BatchLoader(source, SKIPPING.batch_size).at(0)
    return Batch(torch.from_numpy(tokens), positions_BL=torch.from_numpy(source.positions(ids)))


def step_of_all(run: TrainConfig) -> tuple[list[float], dict[str, Tensor]]:
    """The mean loss of all targets, the auxiliary losses of all units, the mean z-loss of all targets, and
    their gradients."""
    model, batch = model_of(run), packed_batch()
    inputs_BL, positions_BL = batch.tokens_BL[:, :-1], batch.positions_BL[:, :-1]
    skipped = model.config.skipped_positions
    targets_BL = batch.tokens_BL[:, 1:].masked_fill(positions_BL < skipped, -100)
    out = model(inputs_BL, position_ids=positions_BL, shift_labels=inputs_BL)
    (valid, *_), unit_shape = (r.valid for r in out.routings), out.routings[0].unit_shape
    assert len(set(valid.view(unit_shape).sum(1).tolist())) > 1
    assert not skipped or len(set((targets_BL >= 0).sum(1).tolist())) > 1
    loss = cross_entropy(out.logits.flatten(0, 1), targets_BL.flatten())
    z_loss = 0.1 * out.logits.logsumexp(-1)[targets_BL >= 0].square().mean()
    (loss + out.auxiliary_loss + z_loss).backward()
    return [loss.item(), out.auxiliary_loss.item(), z_loss.item()], gradients(model)


def model_of(run: TrainConfig) -> LoriiniForCausalLM:
    torch.manual_seed(0)
    return LoriiniForCausalLM(run.config(VOCABULARY, EOS)).train()


@pytest.mark.parametrize("micro_batch_size", [1, 3])
def test_targets_and_units_weigh_the_same_where_instances_have_different_numbers(
    micro_batch_size: int,
) -> None:
    expected, wanted = step_of_all(SKIPPING)
    model, run = model_of(SKIPPING), replace(SKIPPING, micro_batch_size=micro_batch_size)
    losses, _ = accumulate_gradients(model, packed_batch(), run)
    assert torch.stack(losses).tolist() == pytest.approx(expected, rel=1e-5)
    assert_same_gradients(gradients(model), wanted, rtol=1e-3, atol=1e-6)


def step_of_this_process(run: TrainConfig) -> tuple[list[float], dict[str, Any]]:
    """The losses of a step, and this process's gradients, all of them gathered."""
    parallel = join_mesh(ParallelConfig())
    model = build_model(run.config(VOCABULARY, EOS), parallel, "fp32", lambda config: model_of(run))
    share = run.batch_size // parallel.world_size
    own = packed_batch().rows(slice(parallel.rank * share, (parallel.rank + 1) * share))
    losses, _ = accumulate_gradients(model, own, run, parallel)
    found = {name: full_tensor(p.grad).numpy() for name, p in model.named_parameters() if p.grad is not None}
    return torch.stack(losses).tolist(), found


def test_so_do_they_in_several_processes() -> None:
    runs = [SKIPPING, COMPARING]
    for results in job(2, in_one_group, [(step_of_this_process, run) for run in runs]):
        for run, (losses, found) in zip(runs, results, strict=True):
            expected, wanted = step_of_all(run)
            assert losses == pytest.approx(expected, rel=1e-5)
            actual = {name: torch.from_numpy(gradient) for name, gradient in found.items()}
            assert_same_gradients(actual, wanted, rtol=1e-3, atol=1e-6)


def without_losses(run: TrainConfig) -> TrainConfig:
    """The run without auxiliary losses, which are of all units of a batch together."""
    return replace(run, routing=replace(run.routing, load_balance=0.0))
