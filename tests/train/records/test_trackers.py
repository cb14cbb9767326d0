"""Records of a run: every step in its metrics, every few in the trackers that were asked for."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from loriini.common.errors import InputError
from loriini.train import loop
from loriini.train.records import trackers
from loriini.train.records.metrics import METRICS, read_records
from loriini.train.records.trackers import WatchConfig, check_trackers, recording, scalars_of
from runs import STEPS, stop, tiny_corpus, tiny_run


def watched(*trackers: str, **changes: Any) -> Any:
    return tiny_run(watch=WatchConfig(trackers=trackers, every=2), **changes)  # type: ignore[arg-type]


def test_metrics_are_flattened_by_layer_and_expert() -> None:
    record = {
        "step": 20,
        "experts": 2,
        "gradient_norm": None,
        "skipped": False,
        "mean_gates": [[0.25, 0.75], [1.0, 0.0]],
        "active": [0b11, 0b01],
    }
    gates = {
        f"mean_gates/{i}/{j}": g
        for i, row in enumerate([[0.25, 0.75], [1.0, 0.0]])
        for j, g in enumerate(row)
    }
    scalars = {"step": 20.0, "experts": 2.0, "skipped": 0.0, "utilisation/0": 1.0, "utilisation/1": 0.5}
    assert dict(scalars_of(record)) == scalars | gates


def test_tensorboard_shows_every_step_once_after_a_resume(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    corpus, out = tiny_corpus(tmp_path / "tokenizer"), tmp_path / "run"
    stop(watched("tensorboard"), corpus, out, 5)
    loop.train(watched("tensorboard"), corpus, out)
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    losses = {event.step: event.value for event in events.Scalars("loss")}
    assert [event.step for event in events.Scalars("loss")] == list(range(2, STEPS + 1, 2))
    written = {m["step"]: m["loss"] for m in read_records(out / METRICS)}
    assert losses == pytest.approx({step: written[step] for step in losses}, rel=1e-6)
    assert {"gradient_norm", "tokens_per_second", "utilisation/0", "load/1/2"} <= set(
        events.Tags()["scalars"]
    )


class FakeTracker(ModuleType):
    """Stands for wandb: keeps what it is called with."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.settings: dict[str, Any] = {}
        self.logged: list[tuple[int, dict[str, float]]] = []

    def init(self, **settings: Any) -> None:
        self.settings = settings

    def log(self, scalars: dict[str, float], step: int) -> None:
        self.logged.append((step, scalars))

    def finish(self) -> None:
        self.logged.append((0, {}))


def test_trackers_get_the_run_under_one_id_and_every_few_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every step that was evaluated; the metrics have all of them."""
    ids, perplexity = [], {"perplexity": {"web": 9.0}}
    evaluated = (7, {"step": 7.0, "loss": 1.5, "evaluation/perplexity/web": 9.0})
    for _ in range(2):  # the second time resumed
        tracker = FakeTracker("wandb")
        monkeypatch.setitem(sys.modules, "wandb", tracker)
        with recording(WatchConfig(("wandb",), every=2), "mine", {"seed": 1}, tmp_path, 3) as record:
            for step in (4, 5, 7):
                record({"step": step, "loss": 1.5}, perplexity if step == 7 else {})
        expected = {"project": "loriini", "config": {"seed": 1}, "resume": "allow", "name": "mine"}
        assert expected.items() <= tracker.settings.items()
        assert tracker.logged == [(4, {"step": 4.0, "loss": 1.5}), evaluated, (0, {})]
        ids.append(tracker.settings["id"])
    assert ids == [(tmp_path / "watch.id").read_text()] * 2
    assert [record["step"] for record in read_records(tmp_path / METRICS)] == [4, 5, 7] * 2


def test_a_tracker_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"watch\.trackers=wandb: .*pip install 'loriini\[wandb\]'"):
        check_trackers(("wandb",))
    check_trackers(())


def test_a_tracker_without_its_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = FakeTracker("wandb")
    tracker.errors = SimpleNamespace(UsageError=KeyError)  # type: ignore[attr-defined]
    tracker.init = lambda **settings: {}["key"]  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "wandb", tracker)
    with (
        pytest.raises(InputError, match="trackers=wandb"),
        recording(WatchConfig(("wandb",)), "mine", {}, tmp_path, 0),
    ):
        pass
