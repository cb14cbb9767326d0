"""Random routers are drawn once an optimizer step, whatever its micro-batches, also after a resume."""

from dataclasses import replace
from pathlib import Path

import pytest

from loriini.routing import scorer
from loriini.train import loop
from loriini.train.config import TrainConfig
from runs import after_step, metrics, signal_self, tiny_corpus, tiny_run

MICRO_BATCHES, LAYERS, STEPS = 2, 2, 4


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The draw of every random router of a test, in their order."""
    draws: list[int] = []
    normal = scorer.standard_normal
    monkeypatch.setattr(
        scorer, "standard_normal", lambda d, *shape: draws.append(int(d)) or normal(d, *shape)
    )
    return draws


@pytest.fixture
def run() -> TrainConfig:
    run = tiny_run("random", steps=STEPS, micro_batch_size=2)
    return replace(run, warmup=replace(run.warmup, dense_share=0.0))


def test_the_micro_batches_of_a_step_share_its_draw(
    run: TrainConfig, tmp_path: Path, drawn: list[int]
) -> None:
    loop.train(run, tiny_corpus(tmp_path / "tokenizer"), tmp_path / "run")
    first = drawn[0]
    assert first > 1 << 32  # sequences are evaluated with draws from 0 on
    assert drawn == [first + step for step in range(STEPS) for _ in range(MICRO_BATCHES * LAYERS)]
    loop.train(replace(run, seed=1), tiny_corpus(tmp_path / "tokenizer"), tmp_path / "another")
    assert not set(drawn[len(drawn) // 2 :]) & set(drawn[: len(drawn) // 2])


def test_a_resumed_run_draws_what_the_uninterrupted_one_does(run: TrainConfig, tmp_path: Path) -> None:
    corpus = tiny_corpus(tmp_path / "tokenizer")
    loop.train(run, corpus, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        after_step(patch, 2, signal_self)
        with pytest.raises(loop.Interrupted):
            loop.train(run, corpus, tmp_path / "resumed")
    loop.train(run, corpus, tmp_path / "resumed")
    assert metrics(tmp_path / "resumed") == metrics(tmp_path / "whole")
