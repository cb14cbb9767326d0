"""From a recipe's name to a finished run, and from a run's folder on."""

import io
import json
import os
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from loriini.cli import main
from loriini.errors import InputError
from loriini.launch import resume, train_recipe
from loriini.recipes import RECIPES
from loriini.sources.document import Document
from loriini.train import corpora
from loriini.train.override import override
from loriini.train.run import Run
from loriini.train.watch import WatchConfig
from runs import after_step, metrics, prepared, signal_self
from together import job

SMALL = ["--steps", "4", "--batch_size", "2", "--length", "32", "--routing.segment_length", "8"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("corpora") / "sums").folder


def test_an_unknown_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no recipe is named 'tiny-lori'; alike are tiny-lory"):
        train_recipe("tiny-lori", tmp_path / "run", [], [])
    assert not (tmp_path / "run").exists()


def test_large_recipes_need_a_corpus(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"0\.3b-dense needs a corpus: .*`loriini prepare`"):
        train_recipe("0.3b-dense", tmp_path / "run", [], [])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--model.num_attention_heads", "3"], "is not a multiple of --model.num_attention_heads 3"),
        (["--model.num_experts", "0"], "--model.num_experts is 0; it must be at least 1"),
        (
            ["--routing.selection", "top_k", "--routing.top_k", "9"],
            "routing.top_k is 9; it must be at most num_experts, which is 4",
        ),
        (
            ["--routing.selection", "expert_choice", "--warmup.dense_share", "0.5"],
            "set --warmup.dense_share 0",
        ),
        (["--micro_batch_size", "-1"], "micro_batch_size is -1; it must be at least 0"),
    ],
)
def test_overrides_that_do_not_fit_each_other_are_refused(
    overrides: list[str], message: str, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        train_recipe("tiny-lory", tmp_path / "run", [corpus], [*SMALL, *overrides])
    assert not (tmp_path / "run").exists()


def test_a_recipe_trains_on_a_corpus_and_resumes_from_its_folder_alone(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_recipe("tiny-lory", tmp_path / "whole", [corpus], SMALL)
    with monkeypatch.context() as patch:
        after_step(patch, 2, signal_self)
        with pytest.raises(KeyboardInterrupt):
            train_recipe("tiny-lory", tmp_path / "run", [corpus], SMALL)
    monkeypatch.chdir(tmp_path)
    assert resume(Path("run")) == Path("run") / "model"
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    weights = [(tmp_path / run / "model" / "model.safetensors").read_bytes() for run in ("run", "whole")]
    assert weights[0] == weights[1]


def test_nothing_is_resumed_where_there_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no run to resume here \(no run\.json\); start one with"):
        resume(tmp_path)


def test_only_how_a_run_is_spread_may_change_when_it_goes_on(corpus: Path, tmp_path: Path) -> None:
    whole = train_recipe("tiny-lory", tmp_path / "run", [corpus], SMALL)
    assert resume(tmp_path / "run", ["--parallel.shard", "1"]) == whole
    with pytest.raises(InputError, match=r"this folder holds another run \(different: seed\)"):
        resume(tmp_path / "run", ["--seed", "7"])


def little_text() -> list[Document]:
    return [Document(f"d{i}", f"def f{i}(x):\n    return x + {i}\n" * 12, "python") for i in range(60)]


def train_from_the_command_line(out: Path) -> tuple[int, str]:
    """What torchrun starts; its process and what it printed."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr(corpora, "standard_library", little_text)
        main(["train", "tiny-lory", "--out", str(out), "--parallel.experts", "2", *SMALL])
    return os.getpid(), printed.getvalue()


def test_several_processes_make_one_corpus_and_one_run(tmp_path: Path) -> None:
    (first, told), (second, nothing) = job(2, train_from_the_command_line, tmp_path / "run")
    assert first != second
    assert told == f"{tmp_path / 'run' / 'model'}\n"
    assert nothing == ""
    assert [m["step"] for m in metrics(tmp_path / "run")] == [1, 2, 3, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "tiny-corpus-32"]


def test_small_recipes_make_their_corpus_beside_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "standard_library", little_text)
    train_recipe("tiny-dense", tmp_path / "runs" / "a", [], ["--steps", "1", "--length", "32"])
    made = tmp_path / "runs" / "tiny-corpus-32"
    assert (made / "manifest.json").exists()
    train_recipe("tiny-dense", tmp_path / "runs" / "b", [], ["--steps", "1", "--length", "32"])
    settings = json.loads((tmp_path / "runs" / "b" / "run.json").read_text())
    assert settings["corpus"] == [str(made)]


def test_a_run_comes_back_from_its_json() -> None:
    run = override(
        RECIPES["tiny-lory"],
        [
            *("--watch.sinks", "tensorboard,wandb", "--optimizer.betas", "0.9,0.99"),
            *("--speed.activation_checkpointing", "true", "--evaluate.heldout", "a.jsonl,b.jsonl"),
        ],
    )
    assert run.evaluate.heldout == (Path("a.jsonl"), Path("b.jsonl"))
    values = json.loads(json.dumps(run.to_dict()))
    assert Run.from_dict(values) == run
    del values["watch"], values["guard"]["max_skips"]
    assert Run.from_dict({**values, "corpus_digest": "1"}) == replace(run, watch=WatchConfig())


def test_held_out_text_too_short_for_a_segment_is_refused_before_any_work(
    corpus: Path, tmp_path: Path
) -> None:
    short = tmp_path / "web.jsonl"
    short.write_text('{"text": "two"}\n')
    with pytest.raises(InputError, match=r"domain 'web' has instances of .* give it more held-out text"):
        train_recipe("tiny-lory", tmp_path / "run", [corpus], SMALL, [short])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("experts", ["1", "2"])
def test_a_run_in_two_processes_measures_itself_once(corpus: Path, tmp_path: Path, experts: str) -> None:
    heldout = tmp_path / "web.jsonl"
    heldout.write_text(json.dumps({"text": "three times three is nine, they say. " * 20}) + "\n")
    measured = ["--evaluate.every", "2", "--evaluate.sample_every", "2", "--evaluate.sample_tokens", "4"]
    settings = [*SMALL, *measured, "--precision", "bf16", "--parallel.experts", experts]
    job(2, train_recipe, "tiny-lory", tmp_path / "run", [corpus], settings, [heldout])
    for name in ("evaluation.jsonl", "samples.jsonl"):
        lines = [json.loads(line) for line in (tmp_path / "run" / name).read_text().splitlines()]
        assert [line["step"] for line in lines] == [2, 4]
