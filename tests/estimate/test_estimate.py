"""An estimate adds up, says what fits, and names a remedy."""

import json
from dataclasses import replace

import pytest

from loriini.cli.estimate import estimate_text
from loriini.errors import InputError
from loriini.estimate.estimate import GIB, Cluster, estimate, parse_memory
from loriini.launch import dry_run
from loriini.parallel.mesh import ParallelConfig
from loriini.recipes import RECIPES
from runs import tiny_run

TINY = tiny_run("lory", batch_size=8)


def test_weights_are_shared_out_and_the_mixture_counts() -> None:
    one, four = (estimate(TINY, 64, Cluster(gpus)).options[0].holding for gpus in (1, 4))
    total = TINY.config(64, 0).parameters()[0]
    assert one.parameters == one.gradients == one.optimizer / 2 == 4 * total
    assert four.parameters == four.gradients == four.optimizer / 2 == total
    whole = replace(TINY, parallel=ParallelConfig(shard=1))
    assert estimate(whole, 64, Cluster(4)).options[0].holding.parameters == 4 * total
    assert one.total == pytest.approx(
        one.parameters + one.gradients + one.optimizer + one.gathered + one.activations + one.working
    )


def test_options_begin_with_the_runs_own_and_shrink() -> None:
    run = replace(TINY, micro_batch_size=4)
    options = estimate(run, 64, Cluster()).options
    ways = [(o.micro_batch_size, o.activation_checkpointing) for o in options]
    assert ways == [(4, False), (4, True), (2, False), (2, True), (1, False), (1, True)]
    sizes = [o.holding.total for o in options]
    assert sizes[0] > sizes[2] > sizes[4]
    assert sizes[0] > sizes[1]
    assert {o.fits for o in options} == {None}


def test_a_step_is_what_its_tokens_cost() -> None:
    found = estimate(TINY, 64, Cluster(2))
    assert found.tokens_per_step == 8 * 32
    assert found.flops_per_step == TINY.config(64, 0).flops_per_token(32) * 8 * 32


def test_what_fits_is_told() -> None:
    sizes = [o.holding.total for o in estimate(TINY, 64, Cluster()).options]
    memory = (min(sizes) + max(sizes)) / 2
    assert [o.fits for o in estimate(TINY, 64, Cluster(memory=memory)).options] == [
        s <= memory for s in sizes
    ]


def test_too_little_memory_is_refused_with_how_many_gpus_would_do() -> None:
    least = {n: min(o.holding.total for o in estimate(TINY, 64, Cluster(n)).options) for n in (1, 2, 4)}
    assert least[1] > least[2] > least[4]
    with pytest.raises(InputError, match=r"tiny lory does not fit: each of 1 GPUs .*; use --gpus 4$"):
        estimate(TINY, 64, Cluster(memory=(least[2] + least[4]) / 2))
    with pytest.raises(InputError, match=r"more GPUs are not enough; use --memory 0\.0GiB, or a smaller"):
        estimate(TINY, 64, Cluster(memory=1.0))


@pytest.mark.parametrize(
    ("gpus", "told"),
    [(3, "batch_size is 8, no multiple of the 3 processes"), (0, "--gpus 0"), (16, "no multiple of the 16")],
)
def test_a_batch_that_cannot_be_shared_out_is_refused(gpus: int, told: str) -> None:
    with pytest.raises(InputError, match=told):
        estimate(TINY, 64, Cluster(gpus))


def test_sharing_experts_divides_what_is_gathered_of_them() -> None:
    apart, together = (
        estimate(replace(TINY, parallel=ParallelConfig(experts=n)), 64, Cluster(4)) for n in (1, 2)
    )
    assert (apart.group, together.group) == (4, 2)
    gathered = [found.options[0].holding.gathered for found in (apart, together)]
    experts = 3 * 3 * 32 * 48
    assert gathered[0] - gathered[1] == 2 * experts / 2 * 4  # of two layers, in float32


def test_memory_is_read_in_the_usual_units() -> None:
    assert parse_memory("80") == parse_memory("80G") == parse_memory("80GiB") == 80 * GIB
    assert parse_memory("80GB") == 80e9
    for wrong in ("80Q", "GiB", "-1", "nan", "0"):
        with pytest.raises(InputError, match=f"--memory {wrong}: give it as 80GiB"):
            parse_memory(wrong)


@pytest.mark.parametrize("name", ["0.3b-lory-8e", "7b-lory-4e", "732m-aoe-256-aux", "gpt2-small-token-top2"])
def test_recipes_of_full_size_are_estimated(name: str) -> None:
    run = RECIPES[name]
    found = json.loads(json.dumps(dry_run(name, [], Cluster(8, 1e15)).to_dict()))
    total, active = run.config(50_257 if run.model.block == "gpt2" else 32_000, 0).parameters()
    assert (found["parameters_total"], found["parameters_active"]) == (total, active)
    assert all(option["fits"] for option in found["options"])
    assert found["options"][0]["holding"]["total"] > 16 * total / 8
    merged = run.routing.combination == "parameters"
    assert (found["paper"]["4096"]["expert_parallel"] is None) == merged
    text = estimate_text(dry_run(name, [], Cluster(8)))
    assert f"{total:,}" in text
    assert ("not for this design" in text) == merged


def test_expert_wise_parallelism_wins_where_experts_are_large() -> None:
    large = ["--model.num_experts", "32", "--micro_batch_size", "1"]
    paper = dry_run("7b-lory-4e", large, Cluster(64)).paper[4096]
    received = {name: moved.total for name, moved in paper.items() if moved}
    assert received["expert_wise"] < received["fsdp"] / 4


@pytest.mark.parametrize("mesh", [ParallelConfig(experts=4), ParallelConfig(shard=8), ParallelConfig(8, 4)])
def test_one_gpu_holds_all_whatever_the_mesh_of_more(mesh: ParallelConfig) -> None:
    assert estimate(replace(TINY, parallel=mesh), 64, Cluster()) == estimate(TINY, 64, Cluster())


def test_a_remedy_is_a_number_of_gpus_that_the_mesh_divides() -> None:
    run = replace(TINY, parallel=ParallelConfig(experts=4))
    least = min(o.holding.total for o in estimate(TINY, 64, Cluster(2)).options)
    with pytest.raises(InputError, match=r"use --gpus 4$"):
        estimate(run, 64, Cluster(memory=least))


@pytest.mark.parametrize(("design", "copies"), [("lory", 1), ("smear", 1), ("mixtral", 3 * 2)])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_group_keeps_the_states_of_all_its_ranks(design: str, copies: int, checkpointing: bool) -> None:
    run = tiny_run(design, batch_size=8)
    apart, together = (
        estimate(replace(run, parallel=ParallelConfig(experts=n)), 64, Cluster(4)).options[checkpointing]
        for n in (1, 2)
    )
    states = 2 * 32 * 32 * 4  # of another rank's two instances, in float32
    more = together.holding.activations - apart.holding.activations
    assert more == copies * states * (1 if checkpointing else 2)
