"""A run's sections refuse values that cannot be, and its JSON is read, today's and the version's before."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loriini.common.errors import InputError
from loriini.common.settings import settings_of
from loriini.parallel.mesh import ParallelConfig
from loriini.recipes import find_recipe, recipe_names
from loriini.routing import DESIGNS
from loriini.train.changes import MAY_CHANGE, NOT_OF_TRAINING
from loriini.train.checkpoints.storage import CheckpointConfig
from loriini.train.config import ModelShape, TrainConfig, value_from_json
from loriini.train.guard import GuardConfig
from loriini.train.measures import EvaluateConfig
from loriini.train.optimizer import OptimizerConfig
from loriini.train.records.trackers import WatchConfig
from loriini.train.speed import SpeedConfig
from loriini.train.upcycle import WarmupConfig
from runs import tiny_run

OVERLAPPING = OptimizerConfig(schedule="warmup_stable_decay", warmup=0.9, decay=0.2)
WRONG: dict[Any, dict[str, tuple[Any, ...]]] = {
    OptimizerConfig: {
        "learning_rate": (0.0, -1e-3, 2.0, math.nan, math.inf),
        "router_rate": (-1.0, 1e4),
        "betas": ((0.9, 1.0), (-0.1, 0.9), (0.9,), (math.nan, 0.9)),
        "weight_decay": (-0.1, math.inf, 5000.0),
        "warmup": (-0.1, 1.5, math.nan),
        "schedule": ("linear",),
        "decay": (0.0,),
    },
    WarmupConfig: {"dense_share": (1.0, -0.1)},
    CheckpointConfig: {"every": (-1,), "keep": (0,)},
    ParallelConfig: {"share_experts": ("both",)},
    SpeedConfig: {"activation_checkpointing": (1,)},
    EvaluateConfig: {"every": (0,), "skip": (-1, 1.5)},
    WatchConfig: {"trackers": (("paper",),), "peak_flops": (0.0, math.inf)},
    GuardConfig: {"max_skips": (0,), "spike": (-1.0, math.inf)},
    ModelShape: {"hidden_size": (0,), "num_experts": (0, True), "dropout": (1.0,)},
    tiny_run: {
        "steps": (0, 1.5, "9"),
        "micro_batch_size": (-1,),
        "seed": (-1, 2**32),
        "corpus": (("here",),),
        "corpus_weights": ((0.0,), (math.nan,)),
        "model": ({},),
    },
}
SECTIONS = {
    OptimizerConfig: "optimizer.",
    WarmupConfig: "warmup.",
    CheckpointConfig: "checkpoint.",
    ParallelConfig: "parallel.",
    SpeedConfig: "speed.",
    EvaluateConfig: "evaluate.",
    WatchConfig: "watch.",
    GuardConfig: "guard.",
    ModelShape: "model.",
}


@pytest.mark.parametrize("section", WRONG, ids=lambda section: section.__name__)
def test_a_section_refuses_wrong_values_by_the_name_a_user_writes(section: Any) -> None:
    for name, values in WRONG[section].items():
        for value in values:
            with pytest.raises(InputError) as refused:
                section(**{name: value})
            assert str(refused.value).startswith(f"--{SECTIONS.get(section, '')}{name} "), refused.value
            assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: OptimizerConfig(decay=0.0), "--optimizer.decay is 0.0; it must be above 0 and at most 1"),
        (lambda: tiny_run("lory", length=8).check(), "raise --length or lower --routing.segment_length"),
        # there is no segment before any token
        (lambda: tiny_run("segment-then-token", length=8).check(), "--routing.segment_length"),
        (lambda: tiny_run("ec-segment").check(), "set --warmup.dense_share 0"),
        (lambda: tiny_run("ec-token", steps=2).check(), "--warmup.dense_share"),  # too few for a dense step
        (lambda: tiny_run("aoe").check(), "set --warmup.dense_share 0"),
        (lambda: tiny_run("deepseek-v3").check(), "set --warmup.dense_share 0"),
        (lambda: tiny_run(optimizer=OVERLAPPING).check(), "--optimizer.warmup 0.9 and --optimizer.decay 0.2"),
    ],
    ids=range(8),
)
def test_a_refusal_names_the_settings(make: Any, named: str) -> None:
    with pytest.raises(InputError) as refused:
        make()
    assert named in str(refused.value)


def test_a_run_round_trips_through_json() -> None:
    for recipe in map(find_recipe, recipe_names()):
        run = replace(recipe, corpus=(Path("here"), Path("there")))
        assert value_from_json(TrainConfig, json.loads(json.dumps(run.to_dict()))) == run


def test_whole_numbers_of_json_are_floats_where_a_field_is_one() -> None:
    settings = tiny_run("lory").to_dict()
    settings["model"] |= {"initializer_range": 1, "rope_theta": 10**4}
    model = value_from_json(TrainConfig, json.loads(json.dumps(settings))).model
    assert (type(model.initializer_range), type(model.rope_theta)) == (float, float)
    assert value_from_json(TrainConfig, settings).config(300, 0).initializer_range == 1
    settings["routing"]["options"] = 3
    with pytest.raises(ValueError, match=r"routing\.options is 3; it must be a dict"):
        value_from_json(TrainConfig, settings)


def test_the_run_of_the_docs_can_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    (text,) = re.findall(r"^## From Python\n\n```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    trained: list[TrainConfig] = []
    monkeypatch.setattr("loriini.train.launch.train_run", lambda run, out: trained.append(run))
    exec(text, {})
    (run,) = trained
    run.check()
    assert run.routing == DESIGNS["ec-token"]


@pytest.mark.parametrize(
    ("share", "steps", "dense"), [(0.05, 9, 1), (0.05, 10, 1), (0.05, 40, 2), (0.0, 9, 0), (0.9, 1, 0)]
)
def test_a_warmup_has_a_dense_step_and_leaves_one_to_the_mixture(
    share: float, steps: int, dense: int
) -> None:
    assert tiny_run("lory", steps=steps, warmup=WarmupConfig(share)).copy_step == dense


def test_every_setting_has_a_kind() -> None:
    assert not [name for name, setting in settings_of(TrainConfig).items() if setting.kind is None]


def test_what_may_change_on_resume_is_neither_trained_nor_measured() -> None:
    assert {"corpus", "evaluate.heldout", "evaluate.every", "guard.spike", "watch.every"} <= {*MAY_CHANGE}
    assert not {"steps", "length", "seed", "model.hidden_size", "evaluate.instances"} & {*MAY_CHANGE}
    assert set(MAY_CHANGE) - set(NOT_OF_TRAINING) == {"guard.spike"}
