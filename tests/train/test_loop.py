"""Training resumes exactly where it stopped, whatever stopped it, and learns."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from loriini import DESIGNS
from loriini.common.errors import InputError
from loriini.common.signals import Interrupted
from loriini.data.batches.loader import BatchLoader
from loriini.train import loop
from loriini.train.checkpoints import storage
from loriini.train.checkpoints.storage import CheckpointConfig
from loriini.train.config import TrainConfig
from loriini.train.corpora import TrainingCorpus
from loriini.train.loop import start_or_resume, train
from loriini.train.records.metrics import METRICS, read_records
from loriini.train.records.trackers import WatchConfig
from loriini.train.step import TrainingState
from loriini.train.upcycle import WarmupConfig
from runs import COPIED_AT, STEPS, VOCABULARY, assert_same_bits, kill, metrics, signal_self, stop, tiny_run

RESUMED = [
    ("lory", COPIED_AT - 1),
    ("lory", COPIED_AT),
    ("lory", STEPS),
    ("random", COPIED_AT + 2),
    ("mixtral", COPIED_AT + 1),
    ("dense", 5),
    ("deepseek-v3", 5),
]


@pytest.fixture(scope="module")
def uninterrupted(
    corpus: TrainingCorpus, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[TrainConfig], Path]:
    """The folder of a run that nothing stopped, each trained once."""
    trained: dict[str, Path] = {}

    def folder(run: TrainConfig) -> Path:
        if run.name not in trained:
            trained[run.name] = tmp_path_factory.mktemp("whole") / "run"
            train(run, corpus, trained[run.name])
        return trained[run.name]

    return folder


def assert_same_run(out: Path, whole: Path) -> None:
    """The same metrics of every step, once, and the same bits in every weight."""
    assert [m["step"] for m in metrics(out)] == list(range(1, STEPS + 1))
    assert_same_bits(out, whole)


def test_a_failed_last_checkpoint_does_not_cost_the_model(corpus: TrainingCorpus, tmp_path: Path) -> None:
    def full(*_: object) -> None:
        raise OSError("no space")

    run = tiny_run(checkpoint=CheckpointConfig(every=STEPS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "commit", full)
        with pytest.raises(OSError, match="no space"):
            train(run, corpus, tmp_path)
    assert not list((tmp_path / "checkpoints").iterdir())
    assert load_file(tmp_path / "model" / "model.safetensors")


def scratch_or_copied(design: str) -> TrainConfig:
    """A tiny run, with a dense warm-up where the design admits one."""
    copied = DESIGNS[design].preserves_dense
    return tiny_run(design) if copied else tiny_run(design, warmup=WarmupConfig(dense_share=0.0))


def test_a_router_that_cannot_learn_is_warned_of_before_training(
    corpus: TrainingCorpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = replace(DESIGNS["mixtral"], top_k=1, load_balance=0.0)
    for name, design in (("alone", alone), ("switch", DESIGNS["switch"])):
        run = replace(tiny_run("mixtral", steps=1, warmup=WarmupConfig(dense_share=0)), routing=design)
        train(run, corpus, tmp_path / name)
        assert ("no gradient reaches the router" in capsys.readouterr().err) == (name == "alone")


def next_loss(state: TrainingState, corpus: TrainingCorpus, run: TrainConfig) -> float:
    """The loss of the next batch."""
    batches = BatchLoader(corpus.instances, run.batch_size, run.seed)
    tokens = torch.from_numpy(batches.at(state.progress.consumed)[0])
    with torch.no_grad():
        return state.model(tokens[:, :-1], shift_labels=tokens[:, 1:]).loss.item()


@pytest.mark.parametrize("design", ["lory", "ec-segment"])
def test_the_loss_falls_on_a_pattern_that_can_be_learnt(
    design: str, corpus: TrainingCorpus, tmp_path: Path
) -> None:
    share = 0.1 if design != "ec-segment" else 0.0
    run = tiny_run(design, steps=40, batch_size=8, warmup=WarmupConfig(dense_share=share))
    train(run, corpus, tmp_path / "run")
    losses = [m["loss"] for m in metrics(tmp_path / "run")]
    assert abs(losses[0] - math.log(VOCABULARY)) < 0.2
    assert sum(losses[-5:]) / 5 < 0.75 * losses[0]


def test_mfu_is_that_of_the_model_that_a_step_trained(corpus: TrainingCorpus, tmp_path: Path) -> None:
    run = tiny_run("lory", watch=WatchConfig(peak_flops=1e12))
    train(run, corpus, tmp_path)
    for step in read_records(tmp_path / METRICS):
        flops = run.config(VOCABULARY, num_experts=step["experts"]).flops_per_token(run.length)
        assert step["mfu"] == pytest.approx(flops * step["tokens_per_second"] / 1e12)


@pytest.mark.parametrize(("design", "step"), RESUMED)
def test_an_interrupted_run_resumes_to_the_same_bits(
    design: str,
    step: int,
    corpus: TrainingCorpus,
    uninterrupted: Callable[[TrainConfig], Path],
    tmp_path: Path,
) -> None:
    run, out = scratch_or_copied(design), tmp_path / "run"
    stop(run, corpus, out, step)
    assert len(metrics(out)) == step
    assert (out / "model").exists() == (step == STEPS)
    assert train(run, corpus, out) == out / "model"
    assert_same_run(out, uninterrupted(run))


@pytest.mark.parametrize("step", [COPIED_AT - 2, COPIED_AT + 3])
def test_a_killed_run_resumes_from_its_last_checkpoint(
    step: int, corpus: TrainingCorpus, uninterrupted: Callable[[TrainConfig], Path], tmp_path: Path
) -> None:
    run, out = tiny_run(checkpoint=CheckpointConfig(every=COPIED_AT)), tmp_path / "run"
    stop(run, corpus, out, step, kill)
    with open(out / METRICS, "a") as file:
        file.write('{"step": 9')  # a line that the kill cut short
    train(run, corpus, out)
    assert_same_run(out, uninterrupted(tiny_run()))


@pytest.mark.parametrize("saving", ["gather_model", "save_model"])
def test_an_interrupt_while_the_model_is_saved_costs_no_step(
    saving: str, corpus: TrainingCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = getattr(loop, saving)

    def interrupted(*arguments: Any) -> Any:
        signal_self()
        return save(*arguments)

    monkeypatch.setattr(loop, saving, interrupted)
    run = tiny_run(steps=2)
    with pytest.raises(Interrupted, match="the run is finished"):
        train(run, corpus, tmp_path)
    monkeypatch.setattr(loop, "start_step", lambda *arguments: pytest.fail("a step was taken again"))
    assert train(run, corpus, tmp_path) == tmp_path / "model"


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    corpus: TrainingCorpus,
    uninterrupted: Callable[[TrainConfig], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, out = tiny_run(checkpoint=CheckpointConfig(every=3)), tmp_path / "run"
    for _ in range(2):  # the second time a damaged one of this step lies there already
        stop(run, corpus, out, 8, kill)
        (newest,) = (out / "checkpoints" / "step-00000006").glob("*.safetensors")
        newest.write_bytes(newest.read_bytes()[:-1])
        assert start_or_resume(run, corpus, out).progress.step == 3
        assert (out / "checkpoints" / "damaged-step-00000006").exists()
    assert "step-00000006: damaged checkpoint passed over" in " ".join(capsys.readouterr().err.split())
    train(run, corpus, out)
    assert_same_run(out, uninterrupted(tiny_run()))


def test_a_run_whose_checkpoints_are_all_damaged_keeps_its_records(
    corpus: TrainingCorpus, tmp_path: Path
) -> None:
    run = tiny_run(checkpoint=CheckpointConfig(every=3))
    stop(run, corpus, tmp_path, 8, kill)
    for path in tmp_path.glob("checkpoints/*/state.json"):
        path.write_text("{")
    written = (tmp_path / METRICS).read_bytes()
    with pytest.raises(InputError, match=r"checkpoints: no intact checkpoint \(step-00000006: .*; restore"):
        train(run, corpus, tmp_path)
    assert (tmp_path / METRICS).read_bytes() == written


@pytest.mark.parametrize("design", ["lory", "mixtral"])
def test_the_copy_into_experts_leaves_the_loss_unchanged(
    design: str, corpus: TrainingCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, copy_dense = [], loop.copy_dense

    def measured(state: TrainingState, run: TrainConfig, corpus: TrainingCorpus) -> None:
        losses.append(next_loss(state, corpus, run))
        copy_dense(state, run, corpus)
        state.model.eval()  # where the auxiliary loss is not added
        losses.append(next_loss(state, corpus, run))
        state.model.train()

    monkeypatch.setattr(loop, "copy_dense", measured)
    train(tiny_run(design), corpus, tmp_path / "run")
    before, after = losses
    assert abs(after - before) < 1e-4
    steps = metrics(tmp_path / "run")
    assert [m["experts"] for m in steps] == [1] * COPIED_AT + [3] * (STEPS - COPIED_AT)
    assert abs(steps[COPIED_AT]["loss"] - before) < 1e-4


@pytest.mark.parametrize("stopped", [None, 5])
def test_metrics_that_are_fetched_a_step_later_are_the_same(
    stopped: int | None, corpus: TrainingCorpus, uninterrupted: Callable[[TrainConfig], Path], tmp_path: Path
) -> None:
    """As on a GPU. They are there before anything is saved."""
    run = tiny_run("lory")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "steps_ahead", lambda run: 1)
        if stopped:
            stop(run, corpus, tmp_path, stopped)
            assert [m["step"] for m in metrics(tmp_path)] == list(range(1, stopped + 1))
        train(run, corpus, tmp_path)
    assert_same_run(tmp_path, uninterrupted(run))
