"""What is checked before the first step: overrides without effect, and measures in all processes or none."""

import os
from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from loriini.common.errors import InputError
from loriini.parallel.mesh import process_group
from loriini.recipes import find_recipe
from loriini.train import preflight
from loriini.train.overrides.apply import override, override_flags
from loriini.train.preflight import refuse_unused
from together import job


@pytest.mark.parametrize(
    ("recipe", "overrides", "needed"),
    [
        ("tiny-lory", ["--routing.top_k", "2"], "--routing.selection top_k"),
        ("tiny-dense", ["--routing", "mixtral", "--routing.top_k", "1"], "a mixture"),
        ("tiny-dense", ["--routing", "mixtral"], "a mixture, --model.num_experts above 1"),
        ("tiny-lory", ["--optimizer.decay", "0.5"], "--optimizer.schedule warmup_stable_decay"),
        ("tiny-lory", ["--watch.every", "3"], "a tracker"),
        ("tiny-lory", ["--micro_batch_size", "99"], "at most --batch_size"),
        ("tiny-lory", ["--parallel.shard", "2"], "several processes"),
        ("tiny-lory", ["--parallel.reduce_once", "true"], "several processes"),
        ("tiny-lory", ["--evaluate.every", "5"], "held-out text"),
        ("tiny-mixtral", ["--model.recompute_merge", "true"], "a design that merges experts"),
        ("tiny-dense", ["--model.block", "gpt2", "--model.rope_theta", "5e5"], "a block that is not gpt2"),
        ("tiny-lory", ["--model.layer_norm_epsilon", "1e-4"], "--model.block gpt2"),
        ("tiny-aoe", ["--optimizer.router_rate", "2"], "a mixture with a router that is trained"),
        (
            "tiny-mixtral",
            ["--routing.top_k", "1", "--routing.load_balance", "0", "--optimizer.router_rate", "2"],
            "a mixture with a router that is trained",
        ),
        ("tiny-dense", ["--per_expert_every", "2"], "a mixture"),
        ("tiny-lory", ["--checkpoint.keep_every", "500"], "a multiple of --checkpoint.every or, with"),
    ],
)
def test_an_override_without_effect_is_refused(recipe: str, overrides: list[str], needed: str) -> None:
    with pytest.raises(InputError, match=f"has no effect here: it needs {needed}"):
        refuse_unused(override(find_recipe(recipe), overrides), override_flags(overrides), processes=1)


@pytest.mark.parametrize(
    ("recipe", "overrides", "processes"),
    [
        ("tiny-mixtral", ["--routing.top_k", "1"], 1),
        ("tiny-mixtral", ["--routing", "token-top-p", "--routing.top_k", "4"], 1),  # sized by it
        ("tiny-lory", ["--evaluate.heldout", "h.jsonl", "--checkpoint.keep_every", "500"], 1),
        ("tiny-dense", ["--routing.segment_length", "16"], 1),
        ("tiny-dense", ["--routing", "dense"], 1),
        ("tiny-dense", ["--routing", "mixtral", "--model.num_experts", "8"], 1),
        ("tiny-lory", ["--optimizer.schedule", "warmup_stable_decay", "--optimizer.decay", "0.5"], 1),
        ("tiny-lory", ["--parallel.shard", "2"], 2),
        ("tiny-lory", ["--parallel.shard", "1"], 1),
        ("tiny-lory", ["--parallel.reduce_once", "true", "--micro_batch_size", "2"], 2),
        ("tiny-lory", ["--parallel.reduce_once", "true", "--micro_batch_size", "auto"], 2),
        ("tiny-lory", ["--evaluate.every", "5", "--evaluate.heldout", '["text"]'], 1),
        ("tiny-lory", ["--model.recompute_merge", "true"], 1),
        ("tiny-lory", ["--model.rms_norm_eps", "1e-4", "--optimizer.router_rate", "2"], 1),
        ("tiny-lory", ["--model.block", "gpt2", "--model.layer_norm_epsilon", "1e-4"], 1),
    ],
)
def test_an_override_with_an_effect_is_not(recipe: str, overrides: list[str], processes: int) -> None:
    refuse_unused(override(find_recipe(recipe), overrides), override_flags(overrides), processes)


@pytest.mark.parametrize("size", ["0", "4"])
def test_gradients_of_a_single_micro_batch_are_reduced_once_anyway(size: str) -> None:
    overrides = ["--parallel.reduce_once", "true", "--micro_batch_size", size, "--batch_size", "8"]
    run = override(find_recipe("tiny-lory"), overrides)
    with pytest.raises(InputError, match="reduce_once has no effect here: it needs several micro-batches"):
        refuse_unused(run, override_flags(overrides), processes=2)


def is_measured_by_this_process() -> bool:
    """Whether this process measures a run that only the first process sees as finished."""
    stubs = {
        "read_corpora": Mock(),
        "check_trackers": Mock(),
        "check_sizes": Mock(),
        "without_auto": lambda run, corpus, out: None,
        "has_model": lambda out: os.environ["RANK"] == "0",
        "perplexity_measure": lambda run, corpus: "perplexity",
    }
    with process_group(), patch.multiple(preflight, **stubs):
        return preflight.preflight(Mock(), Path("run"))[-1] is not None


def test_processes_that_see_another_folder_measure_alike() -> None:
    assert job(2, is_measured_by_this_process) == [False, False]
