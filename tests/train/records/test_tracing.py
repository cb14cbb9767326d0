"""A trace of the steps that are asked for."""

import json
from pathlib import Path

import pytest

from loriini.common.errors import InputError
from loriini.train.loop import train
from loriini.train.records.tracing import profiled_steps
from loriini.train.records.trackers import WatchConfig
from runs import metrics, stop, tiny_corpus, tiny_run


@pytest.mark.parametrize("text", ["3", "0:2", "3:2", "a:b", "1:2:3"])
def test_other_steps_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--watch\.profile"):
        WatchConfig(profile=text)


def test_steps_are_counted_from_one_both_included() -> None:
    assert list(profiled_steps("2:3")) == [2, 3]
    assert not profiled_steps(None)


def test_a_run_traces_its_steps_also_over_a_resume(tmp_path: Path) -> None:
    run, corpus = tiny_run("dense", steps=6, watch=WatchConfig(profile="2:4")), tiny_corpus(tmp_path / "t")
    stop(run, corpus, tmp_path / "run", 3)
    train(run, corpus, tmp_path / "run")
    train(tiny_run("dense", steps=6), corpus, tmp_path / "plain")
    traces = sorted((tmp_path / "run" / "profile").iterdir())
    assert [path.name for path in traces] == ["steps-2-3.rank-0.json", "steps-4-4.rank-0.json"]
    names = [{event.get("name") for event in json.loads(path.read_text())["traceEvents"]} for path in traces]
    assert all("aten::mm" in each for each in names)
    assert metrics(tmp_path / "run") == metrics(tmp_path / "plain")
    assert not (tmp_path / "plain" / "profile").exists()
