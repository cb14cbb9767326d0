"""A run's folder holds one run, and a finished one is left as it is."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from extensions import tables_restored
from loriini.common.atomic import is_unused
from loriini.common.errors import InputError
from loriini.data.batches.joined import JoinedInstances
from loriini.data.batches.loader import BatchLoader
from loriini.data.jobs.lock import folder_lock
from loriini.routing import register_loss
from loriini.train.changes import check_pool
from loriini.train.checkpoints.storage import CheckpointConfig
from loriini.train.config import read_run
from loriini.train.corpora import TrainingCorpus
from loriini.train.folder import report_reading, warn_of_order
from loriini.train.guard import GuardConfig
from loriini.train.loop import train
from loriini.train.optimizer import OptimizerConfig
from loriini.train.records.trackers import WatchConfig
from loriini.train.speed import SpeedConfig
from loriini.train.upcycle import WarmupConfig
from runs import EOS, STEPS, VOCABULARY, Pattern, metrics, stop, tiny_run


def test_a_finished_run_is_left_as_it_is_and_another_is_refused(
    corpus: TrainingCorpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tiny_run(steps=1), corpus, tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = tiny_run(steps=1, guard=GuardConfig(max_skips=2))
    assert train(again, corpus, tmp_path) == tmp_path / "model"
    assert "that it was trained with; without effect: guard.max_skips\n" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"run\.json: .*: optimizer\.learning_rate, seed\); choose .*--out"):
        train(tiny_run(steps=1, seed=1, optimizer=OptimizerConfig()), corpus, tmp_path)
    with pytest.raises(InputError, match=r"different: corpus_digest, vocab_size"):
        train(tiny_run(steps=1), replace(corpus, digest="other", vocab_size=65), tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == times


def test_a_folder_where_another_process_is_at_work_is_refused(corpus: TrainingCorpus, tmp_path: Path) -> None:
    with folder_lock(tmp_path), pytest.raises(InputError, match="at work here"):
        train(tiny_run(steps=1), corpus, tmp_path)
    assert is_unused(tmp_path)


def test_settings_that_leave_training_unchanged_may_change_when_it_is_resumed(
    corpus: TrainingCorpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop(tiny_run(), corpus, tmp_path, 3)
    run = tiny_run(
        watch=WatchConfig(peak_flops=1e12),
        guard=GuardConfig(max_skips=2),
        speed=SpeedConfig(activation_checkpointing=True),
        checkpoint=CheckpointConfig(every=1),
        micro_batch_size=2,
        per_expert_every=1,
        order="random",
    )
    capsys.readouterr()
    assert train(run, corpus, tmp_path) == tmp_path / "model"
    said = capsys.readouterr().err
    assert f"{tmp_path / 'run.json'}: resumed with checkpoint.every 1, not " in said
    assert "micro_batch_size 2, not 0, order random, not none, per_expert_every 1, not " in said
    assert len(metrics(tmp_path)) == STEPS
    assert read_run(tmp_path / "run.json")[0] == run


@pytest.mark.parametrize(
    ("order", "methods", "warned"),
    [
        ("random", ("random", "plain"), True),
        ("random", ("random",), False),
        ("similar", ("random",), True),
        ("similar", ("given",), False),
        (None, ("random", "similar"), False),
    ],
)
def test_a_corpus_in_another_order_than_the_recipes_is_warned_of(
    order: Any, methods: tuple[str, ...], warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_order(tiny_run(order=order), TrainingCorpus(Pattern(), VOCABULARY, EOS, "", Path(), methods))
    assert ("prepare it with --order" in capsys.readouterr().err) == warned


@pytest.mark.parametrize(("length", "share"), [(32, None), (8, "8 of every 32 tokens, 25%")])
@pytest.mark.parametrize(("steps", "times"), [(12, None), (18, "1.5 times (48 instances)")])
def test_what_is_left_out_and_read_again_is_said(
    length: int, share: str | None, steps: int, times: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(length=length, steps=steps)
    report_reading(run, TrainingCorpus(Pattern(), VOCABULARY, EOS, "", Path()))
    said = " ".join(capsys.readouterr().err.split())
    assert [share is None, times is None] == ["of every" not in said, "reads the corpus" not in said]
    assert all(text in said for text in (share, times) if text)


@pytest.mark.parametrize(("steps", "said"), [(20, "rare 4.2 times (10 instances)"), (4, None)])
def test_of_a_weighted_mixture_it_is_said_which_corpus_is_read_again(
    steps: int, said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """80 places are 4.2 epochs of 10 + 9, in which the larger corpus is read 0.4 times."""
    weights = (1.0, 0.1)
    instances = JoinedInstances((Pattern(size=10), Pattern(size=90)), weights)
    run = tiny_run(steps=steps, corpus=(Path("rare"), Path("common")), corpus_weights=weights)
    report_reading(run, TrainingCorpus(instances, VOCABULARY, EOS, "", Path()))
    written = capsys.readouterr().err
    assert (f"reads {said}\n" in written) if said else not written
    ids = BatchLoader(instances, 4).ids(np.arange(4 * steps))
    assert (np.bincount(ids, minlength=10)[:10].mean() > 1) == (said is not None)


def test_a_context_longer_than_the_corpus_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    short = TrainingCorpus(Pattern(length=16), VOCABULARY, EOS, "short", tmp_path)
    message = "32 tokens, but the corpus was cut into instances of 16; train with --length 16, or"
    with pytest.raises(InputError, match=message):
        train(tiny_run(), short, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("design", "batch_size", "micro_batch_size", "own_loss", "refused"),
    [
        ("ec-token", 8, 0, 0.0, True),
        ("ec-token", 8, 2, 0.0, False),
        ("ec-token", 12, 4, 0.0, True),
        ("mixtral", 8, 0, 0.0, False),  # all instances of both processes
        ("mixtral", 8, 2, 0.0, True),
        ("lory", 8, 2, 0.0, False),
        ("relu", 8, 8, 0.1, True),
        ("relu", 8, 8, 0.0, False),
    ],
)
def test_units_are_compared_among_as_many_instances_after_a_resume(
    design: str, batch_size: int, micro_batch_size: int, own_loss: float, refused: bool, tmp_path: Path
) -> None:
    with tables_restored():
        register_loss("own", lambda routing: routing.logits.amax((-1, -2)))
        run = tiny_run(
            design, batch_size=batch_size, micro_batch_size=micro_batch_size, warmup=WarmupConfig(0.0)
        )
        run = replace(run, routing=replace(run.routing, options={"own": own_loss}))
        with pytest.raises(InputError, match="resume it in 1") if refused else nullcontext():
            check_pool(run, 1, 2, tmp_path / "run.json")
