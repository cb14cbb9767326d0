"""Steps that are not finite, or spikes, are skipped and counted."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist

from loriini import LoriiniForCausalLM
from loriini.common.errors import InputError
from loriini.parallel.mesh import on_first_rank
from loriini.train import guard, loop
from loriini.train.checkpoints.storage import CheckpointConfig
from loriini.train.config import TrainConfig
from loriini.train.corpora import TrainingCorpus
from loriini.train.guard import WINDOW, GuardConfig, largest_norm, with_norm
from runs import assert_same_bits, kill, metrics, stop, tiny_corpus, tiny_run
from together import in_one_group, job


def spoil(patch: pytest.MonkeyPatch, *steps: int, factor: float = math.inf) -> None:
    """Let the loss of some steps, counted from 1, be infinite, or of a gradient so many times as large."""
    start_step, forward = loop.start_step, LoriiniForCausalLM.forward
    now = [0]

    def counted(state: Any, *arguments: Any) -> Any:
        now[0] = state.progress.step + 1
        return start_step(state, *arguments)

    def spoiled(self: Any, *arguments: Any, **named: Any) -> Any:
        out = forward(self, *arguments, **named)
        if now[0] in steps:
            out.loss, out.cross_entropy = (each * factor for each in (out.loss, out.cross_entropy))
        return out

    patch.setattr(loop, "start_step", counted)
    patch.setattr(LoriiniForCausalLM, "forward", spoiled)


def train_spoiled_in_the_last(run: TrainConfig, folder: Path, step: int, factor: float) -> None:
    """Train with a step that is infinite, or a spike, in the last process only; the window is short."""
    with pytest.MonkeyPatch.context() as patch:
        corpus = on_first_rank(lambda: tiny_corpus(folder / "tokenizer"))
        patch.setattr(guard, "WINDOW", 6)
        if dist.get_rank() == dist.get_world_size() - 1:
            spoil(patch, step, factor=factor)
        loop.train(run, corpus, folder / "run")


def test_too_many_in_a_row_stop_the_run_and_say_where(
    corpus: TrainingCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, 2, 4, 5, 6)
    run = tiny_run(guard=GuardConfig(max_skips=3))
    with pytest.raises(InputError, match=r"steps 4 to 6 .*--guard.max_skips 6"):
        loop.train(run, corpus, tmp_path / "run")
    assert len(metrics(tmp_path / "run")) == 6
    monkeypatch.undo()
    loop.train(replace(run, guard=GuardConfig(max_skips=4)), corpus, tmp_path / "run")
    assert [m["skipped"] for m in metrics(tmp_path / "run")][3:7] == [True, True, True, False]


def test_skips_in_a_row_are_counted_over_an_interruption(
    corpus: TrainingCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, 4, 5, 6)
    run = tiny_run(guard=GuardConfig(max_skips=3), checkpoint=CheckpointConfig(every=0))
    stop(run, corpus, tmp_path / "run", 5)
    with pytest.raises(InputError, match="steps 4 to 6"):
        loop.train(run, corpus, tmp_path / "run")


def test_the_largest_norm_is_so_many_deviations_above_the_mean_of_the_window() -> None:
    norms = tuple(1.0 + 0.1 * (i % 2) for i in range(WINDOW // 2))
    assert largest_norm(6.0, norms) == pytest.approx(np.mean(norms) + 6 * np.std(norms, ddof=1))
    assert largest_norm(6.0, norms[1:]) == math.inf
    assert largest_norm(0.0, norms) == math.inf
    for i in range(WINDOW):
        norms = with_norm(with_norm(norms, math.inf), float(i))
    assert norms == tuple(map(float, range(WINDOW)))


SPIKING = tiny_run(guard=GuardConfig(spike=6.0), checkpoint=CheckpointConfig(every=4))


def train_with_a_spike(
    corpus: TrainingCorpus, out: Path, run: TrainConfig = SPIKING, killed_after: int = 0
) -> list[dict[str, Any]]:
    """Train with a spike in step 7 and a short window, and resume after a kill; the metrics."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "WINDOW", 6)
        spoil(patch, 7, factor=1e4)
        if killed_after:
            stop(run, corpus, out, killed_after, kill)
        loop.train(run, corpus, out)
    return metrics(out)


def test_a_spike_of_the_gradient_is_skipped_and_recorded(corpus: TrainingCorpus, tmp_path: Path) -> None:
    records = train_with_a_spike(corpus, tmp_path / "run")
    assert [m["step"] for m in records if m["skipped"]] == [7]
    assert records[6]["gradient_norm"] > 1000 * records[5]["gradient_norm"]
    unguarded = train_with_a_spike(corpus, tmp_path / "other", replace(SPIKING, guard=GuardConfig()))
    assert not any(m["skipped"] for m in unguarded)
    assert unguarded[:6] == records[:6]


def test_a_kill_within_the_window_changes_nothing(corpus: TrainingCorpus, tmp_path: Path) -> None:
    whole = train_with_a_spike(corpus, tmp_path / "whole")
    train_with_a_spike(corpus, tmp_path / "killed", killed_after=6)
    assert whole[6]["skipped"]
    assert_same_bits(tmp_path / "killed", tmp_path / "whole")


def test_what_one_process_skips_is_skipped_in_all(tmp_path: Path) -> None:
    runs = tiny_run(steps=4), replace(SPIKING, steps=8)
    cases = [(runs[0], tmp_path / "infinite", 3, math.inf), (runs[1], tmp_path / "spiking", 7, 1e4)]
    job(2, in_one_group, [(train_spoiled_in_the_last, *case) for case in cases])
    for _, folder, step, _ in cases:
        assert [m["step"] for m in metrics(folder / "run") if m["skipped"]] == [step]
