"""Runs that start from a checkpoint with its optimizer moments."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from loriini.common.errors import InputError
from loriini.train import loop
from loriini.train.launch import train_recipe
from loriini.train.step import TrainingState
from runs import metrics, prepared
from together import in_one_group, job

SMALL = ["--steps", "2", "--batch_size", "2", "--length", "16", "--precision", "fp32"]
SMALL += ["--checkpoint.every", "1", "--optimizer.warmup", "0"]
LORY = [*SMALL, "--routing.segment_length", "8"]
CARRIED = ["--init_moments", "carried"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("corpora") / "sums", "bpe:300", length=16).folder


@pytest.fixture(scope="module")
def dense(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_recipe("tiny-dense", tmp_path_factory.mktemp("runs") / "dense", [corpus], SMALL).parent


@pytest.fixture(scope="module")
def lory(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_recipe("tiny-lory", tmp_path_factory.mktemp("runs") / "lory", [corpus], LORY).parent


def last_checkpoint(run: Path) -> Path:
    return sorted((run / "checkpoints").iterdir())[-1]


def moments(state: TrainingState) -> dict[str, torch.Tensor]:
    """Copies of the first moments by parameter; empty before the first step."""
    parts = {name: state.optimizer.state.get(p, {}) for name, p in state.model.named_parameters()}
    return {name: part["exp_avg"].clone() for name, part in parts.items() if part}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """The moments with which each run starts, and those with which it ends."""
    found = []
    start, finish = loop.start_or_resume, loop.save_final

    def starts(*arguments: Any) -> TrainingState:
        state = start(*arguments)
        found.append(moments(state))
        return state

    def finishes(checkpoints: Any, state: TrainingState, *others: Any) -> None:
        finish(checkpoints, state, *others)
        found.append(moments(state))

    monkeypatch.setattr(loop, "start_or_resume", starts)
    monkeypatch.setattr(loop, "save_final", finishes)
    return found


def test_a_run_starts_with_the_moments_of_its_checkpoint(
    corpus: Path, tmp_path: Path, started: list[dict[str, torch.Tensor]]
) -> None:
    train_recipe("tiny-lory", tmp_path / "first", [corpus], LORY)
    init = str(last_checkpoint(tmp_path / "first"))
    train_recipe("tiny-lory", tmp_path / "carried", [corpus], [*LORY, *CARRIED], init=init)
    train_recipe("tiny-lory", tmp_path / "fresh", [corpus], LORY, init=init)
    new, trained, carried, _, fresh, _ = started
    assert new == fresh == {}
    assert carried.keys() == trained.keys() != set()
    assert all(torch.equal(carried[name], trained[name]) for name in trained)
    first, second = ([step["loss"] for step in metrics(tmp_path / name)] for name in ("carried", "fresh"))
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert metrics(tmp_path / "carried")[0]["step"] == 1
    card = (tmp_path / "carried" / "model" / "README.md").read_text()
    assert f"**started from**: {Path(init).name} (" in card
    assert "), with carried optimizer moments" in card
    assert str(tmp_path) not in card


def test_dense_moments_reach_the_experts_through_a_warm_up(
    corpus: Path, dense: Path, tmp_path: Path, started: list[dict[str, torch.Tensor]]
) -> None:
    start = ("tiny-lory", tmp_path / "run", [corpus])
    init = str(last_checkpoint(dense))
    with pytest.raises(InputError, match=r"is dense, and copied into experts at once; set --warmup"):
        train_recipe(*start, [*LORY, *CARRIED], init=init)
    assert not (tmp_path / "run").exists()
    warm = ["--warmup.dense_share", "0.5"]
    train_recipe(*start, [*LORY, *CARRIED, *warm], init=init)
    at_start, at_end = started
    saved = load_file(next(Path(init).glob("*.safetensors")))
    assert at_start
    assert all(torch.equal(m, saved[f"optimizer.exp_avg.{name}"]) for name, m in at_start.items())
    train_recipe("tiny-lory", tmp_path / "fresh", [corpus], [*LORY, *warm], init=init)
    fresh = started[-1]
    name = next(name for name in at_end if "experts" in name)
    assert len(at_end[name]) > 1
    assert not torch.equal(at_end[name], fresh[name])


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (["--routing", "deepseek-v3", "--routing.balance_bias", "0"], ["--routing.balance_bias", "0.001"]),
        (["--model.num_experts", "1"], ["--routing", "random", "--warmup.dense_share", "0.5"]),
    ],
    ids=["bias", "draws"],
)
def test_buffers_need_no_moments(first: list[str], then: list[str], corpus: Path, tmp_path: Path) -> None:
    train_recipe("tiny-lory", tmp_path / "first", [corpus], [*SMALL, "--warmup.dense_share", "0", *first])
    init = str(last_checkpoint(tmp_path / "first"))
    train_recipe("tiny-lory", tmp_path / "then", [corpus], [*SMALL, *CARRIED, *then], init=init)
    assert len(metrics(tmp_path / "then")) == 2


def test_moments_of_other_parameters_are_refused(corpus: Path, lory: Path, tmp_path: Path) -> None:
    start = ("tiny-lory", tmp_path / "run", [corpus])
    with pytest.raises(InputError, match="has no optimizer state; start from a checkpoint, as RUN/"):
        train_recipe(*start, [*LORY, *CARRIED], init=str(lory))
    others = [*SMALL, *CARRIED, "--routing", "sequence-top2"]
    with pytest.raises(InputError, match="this design has other routers than"):
        train_recipe(*start, others, init=str(last_checkpoint(lory)))
    with pytest.raises(InputError, match="carried needs a checkpoint to start from; give --init"):
        train_recipe(*start, [*LORY, *CARRIED])
    assert not (tmp_path / "run").exists()


def train_with_moments(corpus: Path, init: Path, out: Path) -> None:
    train_recipe("tiny-lory", out, [corpus], [*LORY, *CARRIED], init=str(init))


def test_several_processes_carry_moments(corpus: Path, lory: Path, tmp_path: Path) -> None:
    init = last_checkpoint(lory)
    train_with_moments(corpus, init, tmp_path / "alone")
    job(2, in_one_group, [(train_with_moments, corpus, init, tmp_path / "together")])
    alone, together = ([m["loss"] for m in metrics(tmp_path / name)] for name in ("alone", "together"))
    assert together == pytest.approx(alone, rel=1e-5)
