"""Training goes on exactly where it stopped, whatever stopped it, and learns."""

import json
import math
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from loriini import DESIGNS
from loriini.batches.loader import BatchLoader, Position
from loriini.errors import InputError
from loriini.jobs.lock import folder_lock
from loriini.model import LoriiniForCausalLM
from loriini.train import loop
from loriini.train.checkpoint import CheckpointConfig, Progress
from loriini.train.guard import GuardConfig
from loriini.train.loop import Corpus, Interrupted, State, accumulate_gradients, start_or_resume, train
from loriini.train.metrics import METRICS
from loriini.train.optimizer import OptimizerConfig
from loriini.train.run import Run
from loriini.train.upcycle import WarmupConfig
from loriini.train.watch import WatchConfig
from runs import (
    COPIED_AT,
    EOS,
    STEPS,
    VOCABULARY,
    Pattern,
    after_step,
    metrics,
    signal_self,
    tiny_corpus,
    tiny_run,
)
from tiny import assert_same_gradients, gradients

RESUMED = [
    ("lory", COPIED_AT - 1),
    ("lory", COPIED_AT),
    ("lory", COPIED_AT + 1),
    ("lory", STEPS),
    ("random", COPIED_AT),
    ("random", COPIED_AT + 2),
    ("mixtral", COPIED_AT + 2),
    ("dense", 5),
    ("deepseek-v3", 5),
]


class Killed(Exception):
    """Stands for `kill -9`: nothing is saved on the way out."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return tiny_corpus(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def uninterrupted(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Run], Path]:
    """The folder of a run that nobody stopped, each made once."""
    made: dict[str, Path] = {}

    def folder(run: Run) -> Path:
        if run.name not in made:
            made[run.name] = tmp_path_factory.mktemp("whole") / "run"
            train(run, corpus, made[run.name])
        return made[run.name]

    return folder


def assert_same_run(out: Path, whole: Path) -> None:
    """The same metrics of every step, once, and the same bits in every weight."""
    assert [m["step"] for m in metrics(out)] == list(range(1, STEPS + 1))
    assert metrics(out) == metrics(whole)
    weights, expected = (load_file(run / "model" / "model.safetensors") for run in (out, whole))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], weight) for name, weight in expected.items())


def stop(run: Run, corpus: Corpus, out: Path, step: int, happens: Callable[[], None] = signal_self) -> None:
    """Train until something happens after a step."""
    with pytest.MonkeyPatch.context() as patch:
        after_step(patch, step, happens)
        with pytest.raises((Interrupted, Killed)):
            train(run, corpus, out)


def scratch_or_copied(design: str) -> Run:
    """A tiny run, with a dense warm-up where the design admits one."""
    copied = DESIGNS[design].preserves_dense
    return tiny_run(design) if copied else tiny_run(design, warmup=WarmupConfig(dense_share=0.0))


def kill() -> None:
    raise Killed


def mean_loss(state: State, corpus: Corpus, run: Run) -> float:
    """The loss of the batch that comes next."""
    ids, _, _ = BatchLoader(corpus.instances, run.batch_size, run.seed).at(Position(state.at.consumed))
    tokens = torch.from_numpy(ids)
    with torch.no_grad():
        return state.model(tokens[:, :-1], shift_labels=tokens[:, 1:]).loss.item()


@pytest.mark.parametrize("design", ["lory", "mixtral", "ec-segment"])
def test_the_loss_falls_on_a_pattern_that_can_be_learnt(design: str, corpus: Corpus, tmp_path: Path) -> None:
    share = 0.1 if design != "ec-segment" else 0.0
    run = tiny_run(design, steps=60, batch_size=8, warmup=WarmupConfig(dense_share=share))
    train(run, corpus, tmp_path / "run")
    losses = [m["loss"] for m in metrics(tmp_path / "run")]
    assert abs(losses[0] - math.log(VOCABULARY)) < 0.2
    assert sum(losses[-5:]) / 5 < 0.7 * losses[0]


@pytest.mark.parametrize(("design", "step"), RESUMED)
def test_an_interrupted_run_goes_on_to_the_same_bits(
    design: str, step: int, corpus: Corpus, uninterrupted: Callable[[Run], Path], tmp_path: Path
) -> None:
    run, out = scratch_or_copied(design), tmp_path / "run"
    stop(run, corpus, out, step)
    assert len(metrics(out)) == step
    assert not (out / "model").exists()
    assert train(run, corpus, out) == out / "model"
    assert_same_run(out, uninterrupted(run))


@pytest.mark.parametrize("step", [COPIED_AT - 1, COPIED_AT, COPIED_AT + 2])
def test_dropout_goes_on_to_the_same_bits(
    step: int, corpus: Corpus, uninterrupted: Callable[[Run], Path], tmp_path: Path
) -> None:
    run, out = tiny_run(name="tiny gpt2"), tmp_path / "run"
    run = replace(run, model=replace(run.model, block="gpt2", dropout=0.2))
    stop(run, corpus, out, step)
    train(run, corpus, out)
    assert_same_run(out, uninterrupted(run))


@pytest.mark.parametrize("step", [COPIED_AT - 2, COPIED_AT + 1, COPIED_AT + 3])
def test_a_killed_run_goes_on_from_its_last_checkpoint(
    step: int, corpus: Corpus, uninterrupted: Callable[[Run], Path], tmp_path: Path
) -> None:
    run, out = tiny_run(checkpoint=CheckpointConfig(every=COPIED_AT)), tmp_path / "run"
    stop(run, corpus, out, step, kill)
    with open(out / METRICS, "a") as file:
        file.write('{"step": 9')  # a line that the kill cut short
    train(run, corpus, out)
    assert_same_run(out, uninterrupted(tiny_run()))


def test_a_run_stopped_twice_and_killed_between_is_still_the_same(
    corpus: Corpus, uninterrupted: Callable[[Run], Path], tmp_path: Path
) -> None:
    run, out = tiny_run(), tmp_path / "run"
    stop(run, corpus, out, 2, lambda: signal_self(signal.SIGTERM))
    stop(run, corpus, out, 6, kill)
    stop(run, corpus, out, 8)
    train(run, corpus, out)
    assert_same_run(out, uninterrupted(run))


def test_an_interruption_says_where_it_stopped_and_a_second_one_stops_at_once(
    corpus: Corpus, tmp_path: Path
) -> None:
    def twice() -> None:
        signal_self()
        signal_self()

    handler = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        after_step(patch, 3, signal_self)
        with pytest.raises(Interrupted, match=r"saved after step 3 of 10; the same command goes on"):
            train(tiny_run(), corpus, tmp_path / "once")
    with pytest.MonkeyPatch.context() as patch:
        after_step(patch, 3, twice)
        with pytest.raises(KeyboardInterrupt):
            train(tiny_run(), corpus, tmp_path / "twice")
    assert not (tmp_path / "twice" / "checkpoints").exists()
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_second_sigterm_does_not_keep_it_from_saving(corpus: Corpus, tmp_path: Path) -> None:
    def twice() -> None:
        signal_self(signal.SIGTERM)
        signal_self(signal.SIGTERM)

    stop(tiny_run(), corpus, tmp_path, 3, twice)
    assert (tmp_path / "checkpoints" / "step-00000003" / "state.json").exists()


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    corpus: Corpus,
    uninterrupted: Callable[[Run], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, out = tiny_run(checkpoint=CheckpointConfig(every=3)), tmp_path / "run"
    stop(run, corpus, out, 8, kill)
    (newest,) = (out / "checkpoints" / "step-00000006").glob("*.safetensors")
    newest.write_bytes(newest.read_bytes()[:-1])
    assert start_or_resume(run, corpus, out).at.step == 3
    assert "step-00000006: damaged checkpoint passed over" in " ".join(capsys.readouterr().err.split())
    train(run, corpus, out)
    assert_same_run(out, uninterrupted(tiny_run()))


@pytest.mark.parametrize("micro_batch_size", [1, 3, 4])
def test_accumulated_gradients_are_those_of_the_whole_batch(micro_batch_size: int, corpus: Corpus) -> None:
    run = tiny_run(batch_size=8)
    model = LoriiniForCausalLM(run.config(VOCABULARY, EOS)).train()
    ids, _, _ = BatchLoader(corpus.instances, run.batch_size).at(Position())
    loss, _, _ = accumulate_gradients(model, torch.from_numpy(ids), run)
    whole = gradients(model)
    model.zero_grad()
    parts, _, _ = accumulate_gradients(
        model, torch.from_numpy(ids), replace(run, micro_batch_size=micro_batch_size)
    )
    assert parts == pytest.approx(loss, abs=1e-6)
    assert_same_gradients(gradients(model), whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("design", ["lory", "mixtral", "random"])
def test_the_copy_into_experts_leaves_the_loss_as_it_was(
    design: str, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, copy_dense = [], loop.copy_dense

    def measured(state: State, run: Run, corpus: Corpus) -> None:
        losses.append(mean_loss(state, corpus, run))
        copy_dense(state, run, corpus)
        state.model.eval()  # where the auxiliary loss is not added
        losses.append(mean_loss(state, corpus, run))
        state.model.train()

    monkeypatch.setattr(loop, "copy_dense", measured)
    train(tiny_run(design), corpus, tmp_path / "run")
    before, after = losses
    assert abs(after - before) < 1e-4
    steps = metrics(tmp_path / "run")
    assert [m["experts"] for m in steps] == [1] * COPIED_AT + [3] * (STEPS - COPIED_AT)
    assert abs(steps[COPIED_AT]["loss"] - before) < 1e-4


def test_a_warm_up_of_nearly_all_steps_still_ends_in_a_mixture(corpus: Corpus, tmp_path: Path) -> None:
    run = tiny_run(steps=2, warmup=WarmupConfig(dense_share=0.9))
    train(run, corpus, tmp_path / "run")
    assert [m["experts"] for m in metrics(tmp_path / "run")] == [1, 3]


def test_a_folder_of_another_run_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    train(tiny_run(steps=1), corpus, tmp_path)
    with pytest.raises(InputError, match=r"run\.json: .*different: optimizer, seed\); choose another --out"):
        train(tiny_run(steps=1, seed=1, optimizer=OptimizerConfig()), corpus, tmp_path)
    with pytest.raises(InputError, match=r"different: corpus_digest, vocab_size"):
        train(tiny_run(steps=1), replace(corpus, digest="other", vocab_size=65), tmp_path)


def test_a_folder_where_another_process_is_at_work_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    with folder_lock(tmp_path), pytest.raises(InputError, match="at work here"):
        train(tiny_run(steps=1), corpus, tmp_path)


def test_what_is_told_and_when_it_stops_may_change_on_the_way(corpus: Corpus, tmp_path: Path) -> None:
    stop(tiny_run(), corpus, tmp_path, 3)
    run = tiny_run(watch=WatchConfig(peak_flops=1e12), guard=GuardConfig(max_skips=2))
    assert train(run, corpus, tmp_path) == tmp_path / "model"
    assert len(metrics(tmp_path)) == STEPS
    assert Run.from_dict(json.loads((tmp_path / "run.json").read_text())) == run


def test_a_run_of_the_version_before_is_resumed(
    corpus: Corpus, uninterrupted: Callable[[Run], Path], tmp_path: Path
) -> None:
    stop(tiny_run(), corpus, tmp_path, COPIED_AT + 1)
    path = tmp_path / "run.json"
    written = json.loads(path.read_text())
    del written["order"], written["evaluate"]["skip"]
    path.write_text(json.dumps({**written, "gone": 1}))
    train(tiny_run(), corpus, tmp_path)
    assert_same_run(tmp_path, uninterrupted(tiny_run()))


@pytest.mark.parametrize(
    ("order", "methods", "warned"),
    [
        ("random", ("random", "papers"), True),
        ("random", ("random",), False),
        ("similar", ("papers", "similar"), False),
        ("similar", ("random",), True),
        ("similar", ("given",), False),
        (None, ("random", "similar"), False),
    ],
)
def test_a_corpus_in_another_order_than_the_recipes_is_warned_of(
    order: Any, methods: tuple[str, ...], warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = Corpus(Pattern(), VOCABULARY, EOS, "", Path(), methods)
    loop.warn_of_order(tiny_run(order=order), corpus)
    assert ("prepare it with --order" in capsys.readouterr().err) == warned


def test_reading_a_checkpoint_leaves_what_was_written_down_after_it(corpus: Corpus, tmp_path: Path) -> None:
    run = tiny_run(checkpoint=CheckpointConfig(every=3))
    stop(run, corpus, tmp_path, 5, kill)
    written = (tmp_path / METRICS).read_text()
    assert start_or_resume(run, corpus, tmp_path).at.step == 3
    assert (tmp_path / METRICS).read_text() == written
    assert len(metrics(tmp_path)) == 4


def test_a_context_longer_than_the_corpus_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    short = Corpus(Pattern(length=16), VOCABULARY, EOS, "short", tmp_path)
    with pytest.raises(InputError, match=r"32 tokens, but the corpus was cut into 16; .*--length 32"):
        train(tiny_run(), short, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_shorter_context_reads_the_start_of_every_instance(corpus: Corpus, tmp_path: Path) -> None:
    train(tiny_run(steps=2, length=16), corpus, tmp_path)
    assert [m["tokens"] for m in metrics(tmp_path)] == [4 * 16, 2 * 4 * 16]


def test_a_finished_run_is_left_as_it_is(corpus: Corpus, tmp_path: Path) -> None:
    train(tiny_run(steps=1), corpus, tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = tiny_run(steps=1, guard=GuardConfig(max_skips=2))
    assert train(again, corpus, tmp_path) == tmp_path / "model"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == times


def test_a_step_whose_gradient_is_not_finite_is_skipped_and_told(corpus: Corpus) -> None:
    run = tiny_run("dense")
    state = fresh_state(run)
    batches = BatchLoader(corpus.instances, run.batch_size)
    loop.training_step(state, run, batches)
    weight = state.model.lm_head.weight
    hook = weight.register_hook(lambda gradient: gradient * math.inf)
    before = {name: p.detach().clone() for name, p in state.model.named_parameters()}
    record = loop.training_step(state, run, batches)
    assert record["skipped"]
    assert record["gradient_norm"] is None
    assert state.at == Progress(step=2, consumed=2 * 4, tokens=2 * 4 * 32, skips=1)
    assert all(torch.equal(p, before[name]) for name, p in state.model.named_parameters())
    hook.remove()
    assert not loop.training_step(state, run, batches)["skipped"]
    assert not torch.equal(weight, before["lm_head.weight"])


def fresh_state(run: Run) -> State:
    model = LoriiniForCausalLM(run.config(VOCABULARY, EOS)).train()
    return State(model, loop.make_optimizer(model, run.optimizer), Progress())
