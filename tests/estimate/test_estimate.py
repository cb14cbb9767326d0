"""An estimate adds up, says what fits, and suggests a remedy."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from covering import one_of_each
from live_bytes import LiveBytes
from loriini import LoriiniForCausalLM
from loriini.cli.estimate_table import estimate_text
from loriini.common.errors import InputError
from loriini.common.hardware import machine_memory
from loriini.estimate import muon as estimate_muon
from loriini.estimate.estimate import Estimate, estimate
from loriini.estimate.memory import (
    GIB,
    RankMemory,
    check_memory,
    least_memory,
    memory_by_option,
    parse_memory,
)
from loriini.estimate.muon import muon_transient_bytes
from loriini.parallel.mesh import ParallelConfig
from loriini.recipes import find_recipe
from loriini.train import muon
from loriini.train.config import TrainConfig
from loriini.train.launch import dry_run
from loriini.train.optimizer import hidden_matrices
from runs import tiny_run

TINY = tiny_run("lory", batch_size=8)


@pytest.fixture(scope="module")
def single() -> Estimate:
    """On one GPU."""
    return estimate(TINY, 64)


def memory(run: TrainConfig, gpus: int, checkpointing: bool = False) -> RankMemory:
    """Of a rank with a micro-batch of two instances."""
    return memory_by_option(run, run.config(64, 0), gpus)(2, False, checkpointing)


def test_weights_are_shared_out_and_the_mixture_counts() -> None:
    one, four = memory(TINY, 1), memory(TINY, 4)
    total = TINY.config(64, 0).parameters()[0]
    assert one.parameters == one.gradients == one.optimizer / 2 == 4 * total
    assert four.parameters == four.gradients == four.optimizer / 2 == total
    assert memory(replace(TINY, parallel=ParallelConfig(shard=1)), 4).parameters == 4 * total
    assert one.total == pytest.approx(
        one.parameters + one.gradients + one.optimizer + one.gathered + one.activations + one.transient
    )


@one_of_each(design=["lory", "mixtral", "aoe"], gpus=[1, 4, 8])
def test_of_matrices_muon_holds_one_moment(design: str, gpus: int) -> None:
    run = tiny_run(design, batch_size=8)
    muon = replace(run, optimizer=replace(run.optimizer, name="muon"))
    config = run.config(64, 0)
    model = LoriiniForCausalLM(config)
    numbers = sum(parameter.numel() for parameter in hidden_matrices(model))
    assert memory(run, gpus).optimizer - memory(muon, gpus).optimizer == 4 * numbers / gpus
    assert 16 * config.parameters()[0] > least_memory(muon, config, 1) > 12 * config.parameters()[0]
    assert least_memory(muon, config, gpus) < memory(muon, gpus).total


@pytest.mark.parametrize(("rows", "columns"), [(128, 128), (128, 256), (128, 352), (352, 128)])
def test_what_muons_step_needs_is_estimated(rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is the peak: with few activations, of which it begins after."""
    monkeypatch.setattr(muon, "iteration_dtype", lambda x: torch.bfloat16)
    monkeypatch.setattr(
        estimate_muon, "_hidden_shapes", lambda config: [(torch.Size((8, rows, columns)), None)]
    )
    of_gpu = muon_transient_bytes(TINY.config(64, 0), 1, 1, "width")
    weight = nn.Parameter(torch.randn(8, rows, columns))
    optimizer = muon.Muon([{"params": [weight], muon.MATRICES: True, "momentum": 0.9}], fused=True)
    weight.grad = torch.randn_like(weight)
    optimizer.step()
    with LiveBytes() as live:
        held = live.count([weight, weight.grad, optimizer.state[weight]["exp_avg"]])
        optimizer.step()
    assert 0.75 * of_gpu < live.peak - held < 1.01 * of_gpu


def test_muons_step_may_be_the_peak() -> None:
    run = replace(TINY, model=replace(TINY.model, num_experts=256))
    muons = replace(run, optimizer=replace(run.optimizer, name="muon"))
    adamw, its = memory(run, 1), memory(muons, 1)
    of_muon = muon_transient_bytes(run.config(64, 0), 1, 1, "width")
    assert adamw.transient < its.transient
    assert its.transient + its.activations + its.gathered == pytest.approx(of_muon)


def test_what_muon_gathers_is_said() -> None:
    run = replace(TINY, optimizer=replace(TINY.optimizer, name="muon"))
    alone, four = (estimate(run, 64, gpus) for gpus in (1, 4))
    attention, experts = 4 * 32 * 32, 3 * 3 * 32 * 48
    assert (alone.muon_bytes, four.muon_bytes) == (0, 2 * 2 * (attention + experts) * 3 / 4)
    assert "Muon" not in estimate_text(alone)
    assert "Muon gathers matrices: 0.00 GiB sent and received by each rank" in estimate_text(four)
    assert estimate(TINY, 64, 4).muon_bytes == 0


def test_gradients_reduced_once_a_step_are_held_whole() -> None:
    config = TINY.config(64, 0)

    def gradients(mesh: ParallelConfig, gpus: int) -> float:
        return memory(replace(TINY, parallel=mesh), gpus).gradients

    once, total = ParallelConfig(reduce_once=True), 4 * config.parameters()[0]
    assert gradients(once, 1) == total
    assert gradients(once, 4) == total / 4  # a single micro-batch of two
    assert gradients(once, 2) == total / 2 + total
    assert gradients(ParallelConfig(experts=2, reduce_once=True), 2) < gradients(once, 2)


def test_options_begin_with_the_runs_own_and_shrink() -> None:
    options = estimate(replace(TINY, micro_batch_size=4), 64).options
    ways = [(o.micro_batch_size, o.recompute_merge, o.activation_checkpointing) for o in options]
    booleans = (False, True)
    assert ways == [(size, a, c) for size in (4, 2, 1) for a in booleans for c in booleans]
    sizes = [o.memory.total for o in options]
    assert sizes[0] > sizes[4] > sizes[8]
    assert sizes[0] > sizes[1]
    assert sizes[0] > sizes[2]
    assert {o.fits for o in options} == {None}


def test_an_option_fits_in_at_least_its_memory(single: Estimate) -> None:
    sizes = [o.memory.total for o in single.options]
    limit = (min(sizes) + max(sizes)) / 2
    found = [(o.fits, o.memory.total <= limit) for o in estimate(TINY, 64, 1, limit).options]
    assert set(found) == {(True, True), (False, False)}
    with pytest.raises(InputError, match="--memory"):
        estimate(TINY, 64, 1, min(sizes) - 1)


@pytest.mark.parametrize(
    ("gpus", "message"), [(3, "batch_size is 8"), (0, "--gpus 0"), (16, "batch_size is 8")]
)
def test_a_batch_that_cannot_be_shared_out_is_refused(gpus: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        estimate(TINY, 64, gpus)


def test_sharing_experts_divides_what_is_gathered_of_them() -> None:
    runs = [replace(TINY, parallel=ParallelConfig(experts=n)) for n in (1, 2)]
    apart, together = (memory(run, 4).gathered for run in runs)
    experts = 3 * 3 * 32 * 48
    assert apart - together == 2 * experts / 2 * 4  # of two layers, in float32


def test_memory_is_read_in_the_usual_units() -> None:
    assert parse_memory("80") == parse_memory("80G") == parse_memory("80GiB") == 80 * GIB
    assert parse_memory("80GB") == 80e9
    for wrong in ("80Q", "GiB", "-1", "nan", "0"):
        with pytest.raises(InputError, match=f"--memory {wrong}: give it as 80GiB"):
            parse_memory(wrong)


@pytest.mark.parametrize("name", ["7b-lory-4e", "gpt2-small-token-top2"])
def test_recipes_of_full_size_are_estimated(name: str) -> None:
    run = replace(find_recipe(name), micro_batch_size=1)
    found = dry_run(name, ["--micro_batch_size", "1"], 8, 1e15)
    read = json.loads(json.dumps(found.to_dict()))
    total, active = run.config(50_257 if run.model.block == "gpt2" else 32_000, 0).parameters()
    assert (read["parameters_total"], read["parameters_active"]) == (total, active)
    assert (
        found.flops_per_step
        == run.config(found.vocab_size, 0).flops_per_token(run.length) * found.tokens_per_step
    )
    assert all(option["fits"] for option in read["options"])
    assert read["options"][0]["memory"]["total"] > 16 * total / 8
    assert f"{total:,}" in estimate_text(found)
    assert f"{run.steps:,} steps: {run.steps * found.tokens_per_step / 1e9:,.1f} G tokens" in estimate_text(
        found
    )


def test_one_gpu_holds_everything_whatever_the_mesh_of_several(single: Estimate) -> None:
    for mesh in (ParallelConfig(experts=4), ParallelConfig(shard=8), ParallelConfig(8, 4)):
        assert memory(replace(TINY, parallel=mesh), 1) == memory(TINY, 1)
    sharded = estimate(replace(TINY, parallel=ParallelConfig(8, 4)), 64)
    assert replace(sharded, run=single.run) == single


@one_of_each(design=["lory", "smear", "mixtral"], checkpointing=[False, True])
def test_a_group_keeps_the_states_of_all_its_ranks(design: str, checkpointing: bool) -> None:
    run = tiny_run(design, batch_size=8)
    apart, together = (
        memory(replace(run, parallel=ParallelConfig(experts=n)), 4, checkpointing) for n in (1, 2)
    )
    states = 2 * 32 * 32 * 4  # of another rank's two instances, in float32
    copies = {"lory": 1, "smear": 1, "mixtral": 2 * 2}[design]
    assert together.activations - apart.activations == copies * states * (1 if checkpointing else 2)


def test_ranks_with_whole_experts_keep_no_states_of_others() -> None:
    run = tiny_run("mixtral", batch_size=8)
    whole = replace(run, parallel=ParallelConfig(experts=2, share_experts="whole"))
    assert memory(whole, 4).activations == memory(run, 4).activations
    assert memory(whole, 4).gathered < memory(run, 4).gathered


@pytest.mark.parametrize("name", ["tiny-dense", "tiny-lory", "tiny-mixtral", "tiny-aoe"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_least_is_below_the_estimate(name: str, checkpointing: bool) -> None:
    run = find_recipe(name)
    run = replace(run, speed=replace(run.speed, activation_checkpointing=checkpointing))
    config = run.config(320, eos_token_id=0)
    estimated = memory_by_option(run, config, 1)(run.batch_size, False, checkpointing).total
    assert 12 * config.parameters()[0] < least_memory(run, config, 1) < estimated


def test_a_run_above_the_memory_is_refused() -> None:
    run = find_recipe("tiny-lory")
    large = replace(run, model=replace(run.model, hidden_size=100_000))
    check_memory(run, run.config(320, 0), 1, machine_memory(), "this machine")
    with pytest.raises(InputError, match=r"900\.3 GiB, 899\.5 of them .*; this machine has 23\.0"):
        check_memory(large, large.config(320, 0), 1, 23 * GIB, "this machine")
