"""The least that a run needs is below its estimate, and a run above a machine's memory is refused."""

from dataclasses import replace

import pytest

from loriini.common.errors import InputError
from loriini.common.hardware import machine_memory
from loriini.estimate.memory import GIB, check_memory, least_memory, micro_batch_activations, rank_memory
from loriini.recipes import find_recipe


@pytest.mark.parametrize("name", ["tiny-dense", "tiny-lory", "tiny-mixtral", "tiny-aoe"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_least_is_below_the_estimate(name: str, checkpointing: bool) -> None:
    run = find_recipe(name)
    run = replace(run, speed=replace(run.speed, activation_checkpointing=checkpointing))
    config = run.config(320, eos_token_id=0)
    counted = micro_batch_activations(run, config, run.batch_size)
    estimated = rank_memory(run, config, 1, run.batch_size, checkpointing, counted).total
    assert 16 * config.parameters()[0] < least_memory(run, config, 1) < estimated


def test_a_run_above_the_memory_is_refused() -> None:
    run = find_recipe("tiny-lory")
    large = replace(run, model=replace(run.model, hidden_size=100_000))
    check_memory(run, run.config(320, 0), 1, machine_memory(), "this machine")
    with pytest.raises(
        InputError, match=r"needs at least 1,200\.1 GiB, 1,199\.4 of them .* moments; this machine has 23\.0"
    ):
        check_memory(large, large.config(320, 0), 1, 23 * GIB, "this machine")
