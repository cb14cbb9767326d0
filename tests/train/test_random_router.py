"""Random routers are drawn once an optimizer step, whatever its micro-batches."""

from dataclasses import replace
from pathlib import Path

import pytest

from loriini.routing import scorer
from loriini.train import loop
from loriini.train.upcycle import WarmupConfig
from runs import tiny_corpus, tiny_run

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


def test_the_micro_batches_of_a_step_share_its_draw(tmp_path: Path, drawn: list[int]) -> None:
    run = tiny_run("random", steps=STEPS, micro_batch_size=2, warmup=WarmupConfig(0.0))
    run = replace(run, model=replace(run.model, expert_scale="initializer"))  # another is measured by draws
    loop.train(run, tiny_corpus(tmp_path / "tokenizer"), tmp_path / "run")
    first = drawn[0]
    assert first > 1 << 32  # sequences are evaluated with draws from 0 on
    assert drawn == [first + step for step in range(STEPS) for _ in range(MICRO_BATCHES * LAYERS)]
    loop.train(replace(run, seed=1), tiny_corpus(tmp_path / "tokenizer"), tmp_path / "another")
    assert not set(drawn[len(drawn) // 2 :]) & set(drawn[: len(drawn) // 2])
