"""Measures are recorded once for each step, and change nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from loriini import LoriiniForCausalLM
from loriini.train import loop
from loriini.train.checkpoints.storage import CheckpointConfig
from loriini.train.corpora import TrainingCorpus
from loriini.train.measures import Measure
from runs import STEPS, Killed, after_step, kill, metrics, tiny_run


def norm(model: LoriiniForCausalLM) -> dict[str, Any]:
    """A measure that does all a measure must not: evaluates, and draws random numbers."""
    model.eval()
    torch.rand(3)
    return {"norm": model.lm_head.weight.norm().item()}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_measuring_changes_nothing(corpus: TrainingCorpus, tmp_path: Path) -> None:
    run = tiny_run("random")
    loop.train(run, corpus, tmp_path / "plain")
    loop.train(run, corpus, tmp_path / "measured", Measure(3, norm))
    assert metrics(tmp_path / "measured") == metrics(tmp_path / "plain")
    assert [line["step"] for line in lines(tmp_path / "measured" / "evaluation.jsonl")] == [3, 6, 9, STEPS]


def test_no_step_is_measured_twice_after_a_kill(corpus: TrainingCorpus, tmp_path: Path) -> None:
    measure = Measure(2, norm)
    run = tiny_run(checkpoint=CheckpointConfig(every=3))
    with pytest.MonkeyPatch.context() as patch:
        after_step(patch, 5, kill)
        with pytest.raises(Killed):
            loop.train(run, corpus, tmp_path / "run", measure)
    assert [line["step"] for line in lines(tmp_path / "run" / "evaluation.jsonl")] == [2, 4]
    loop.train(run, corpus, tmp_path / "run", measure)
    loop.train(run, corpus, tmp_path / "whole", measure)
    assert lines(tmp_path / "run" / "evaluation.jsonl") == lines(tmp_path / "whole" / "evaluation.jsonl")
