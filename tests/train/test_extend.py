"""A run that goes on from a checkpoint of another ends as one that was planned so from the start."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from loriini.common import atomic
from loriini.common.errors import InputError
from loriini.common.hub import RUN
from loriini.train.changes import shared_steps
from loriini.train.checkpoints import state
from loriini.train.checkpoints.state import checkpoints_in, step_of
from loriini.train.checkpoints.storage import CheckpointConfig
from loriini.train.config import TrainConfig, read_run
from loriini.train.corpora import TrainingCorpus
from loriini.train.extend import extend, replanned
from loriini.train.loop import start_or_resume, train
from loriini.train.optimizer import OptimizerConfig, learning_rate_factor
from loriini.train.records.metrics import METRICS
from loriini.train.upcycle import WarmupConfig
from runs import COPIED_AT, STEPS, Killed, kill, metrics, stop, tiny_corpus, tiny_run

STABLE = OptimizerConfig(learning_rate=1e-2, warmup=0.2, schedule="warmup_stable_decay", decay=0.3)
"""Of ten steps two rise, and the last three fall: the rates of steps 1 to 7 are those of a longer run."""


def stable_run(**changes: Any) -> TrainConfig:
    values: dict[str, Any] = {"optimizer": STABLE, "checkpoint": CheckpointConfig(every=1, keep=STEPS)}
    return tiny_run("lory", **{**values, **changes})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> TrainingCorpus:
    return tiny_corpus(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def trained(corpus: TrainingCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "ten"
    train(stable_run(), corpus, out)
    return out


@pytest.mark.parametrize(("steps", "taken_from"), [(14, 7), (6, 4)])
def test_it_equals_a_run_planned_so(
    steps: int, taken_from: int, trained: Path, corpus: TrainingCorpus, tmp_path: Path
) -> None:
    """Fourteen steps go on from the mixture, six, whose rate falls earlier, from the dense model."""
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    run = replanned(stable_run(), ["--steps", str(steps)])
    assert run.copy_step == COPIED_AT
    extend(trained, run, tmp_path / "longer")
    checkpoints = [step_of(path) for path in checkpoints_in(tmp_path / "longer" / "checkpoints")]
    train(run, corpus, tmp_path / "longer")
    train(run, corpus, tmp_path / "planned")
    assert metrics(tmp_path / "longer") == metrics(tmp_path / "planned")
    assert [m["step"] for m in metrics(tmp_path / "longer")] == list(range(1, steps + 1))
    weights, expected = (
        load_file(tmp_path / name / "model" / "model.safetensors") for name in ("longer", "planned")
    )
    assert all(torch.equal(weights[name], weight) for name, weight in expected.items())
    assert checkpoints == [taken_from]
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


@pytest.mark.parametrize("every", [1, 3])
def test_a_finished_run_keeps_a_checkpoint_to_go_on_from(
    every: int, corpus: TrainingCorpus, tmp_path: Path
) -> None:
    """Though only the newest is kept, and the rate has fallen since."""
    run = stable_run(checkpoint=CheckpointConfig(every=every, keep=1))
    train(run, corpus, tmp_path / "ten")
    extend(tmp_path / "ten", replanned(run, ["--steps", "14"]), tmp_path / "more")
    (kept,) = checkpoints_in(tmp_path / "more" / "checkpoints")
    assert step_of(kept) == 7 // every * every


def test_shared_steps_equal_those_counted_one_by_one() -> None:
    """The naive twin, over plans that differ in one thing or in several."""
    plans = [
        stable_run(),
        stable_run(steps=14),
        stable_run(steps=20, optimizer=replace(STABLE, warmup=0.1)),
        stable_run(steps=12, warmup=WarmupConfig(dense_share=0.5)),
        stable_run(optimizer=replace(STABLE, schedule="constant")),
        stable_run(optimizer=replace(STABLE, schedule="cosine")),
        stable_run(optimizer=replace(STABLE, decay=0.5)),
    ]

    def rates_and_models(run: TrainConfig) -> list[tuple[float, bool]]:
        return [
            (learning_rate_factor(run.optimizer, i, run.steps), run.is_dense_at(i + 1))
            for i in range(run.steps)
        ]

    for one in plans:
        for other in plans:
            both = list(zip(rates_and_models(one), rates_and_models(other), strict=False))
            counted = next((i for i, (a, b) in enumerate(both) if a != b), len(both))
            assert shared_steps(one, other) == counted


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--seed", "1"], "--steps"),
        (["--steps", "10"], "--steps"),
        (["--steps", "4"], "--steps 4: .* at least 5"),
        (["--steps", "14", "--seed", "1"], "keeps seed"),
    ],
)
def test_other_changes_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replanned(stable_run(), overrides)


def test_there_must_be_a_checkpoint_of_both(trained: Path, tmp_path: Path) -> None:
    for change in (("warmup.dense_share", "0"), ("optimizer.warmup", "0.5")):
        run = replanned(stable_run(), ["--steps", "14", f"--{change[0]}", change[1]])
        with pytest.raises(InputError, match="no intact checkpoint up to step 0"):
            extend(trained, run, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_checkpoint_that_is_known_to_be_intact_is_not_read_again(
    trained: Path, corpus: TrainingCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But a later one, which another job may have written meanwhile, is checked, and taken."""
    run, out = replanned(stable_run(), ["--steps", "14"]), tmp_path / "longer"
    checked: list[str] = []
    check = state.byte_problem
    monkeypatch.setattr(state, "byte_problem", lambda path, *share: checked.append(path.name) or check(path))
    intact = extend(trained, run, out)
    assert intact == out / "checkpoints" / "step-00000007"
    assert start_or_resume(run, corpus, out, intact=intact).progress.step == 7
    assert checked == ["step-00000007"]
    stop(run, corpus, out, 9)
    assert start_or_resume(run, corpus, out, intact=intact).progress.step == 9
    assert checked == ["step-00000007", "step-00000007", "step-00000009"]
    assert extend(trained, run, out) is None
    train(run, corpus, out)
    assert [m["step"] for m in metrics(out)] == list(range(1, 15))
    assert (out / METRICS).stat().st_ino != (trained / METRICS).stat().st_ino


def test_a_kill_leaves_nothing_in_the_way(trained: Path, tmp_path: Path) -> None:
    run, out = replanned(stable_run(), ["--steps", "14"]), tmp_path / "longer"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loriini.train.extend.records_until", lambda path, step: kill())
        patch.setattr(atomic, "_remove", lambda path: None)  # a kill cleans nothing up
        with pytest.raises(Killed):
            extend(trained, run, out)
    assert not out.exists()
    extend(trained, run, out)
    assert read_run(out / RUN)[0].steps == 14
    assert [path.name for path in tmp_path.iterdir()] == ["longer"]


def test_a_folder_of_something_else_is_refused(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match="--out"):
        extend(trained, replanned(stable_run(), ["--steps", "14"]), tmp_path)
