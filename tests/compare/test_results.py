"""Results: every cell and variant, scored on the same tokens, compared only where they compare."""

import json
import math
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from cli.calls import Captured, assert_refused, call
from compare.conftest import Compared, all_trained_here, compare_here, overrides
from loriini.cli import main
from loriini.common.errors import InputError
from loriini.common.folders import RUN
from loriini.compare import job
from loriini.compare.existing import existing_trainings
from loriini.compare.grid import make_trainings
from loriini.compare.job import measure_trainings
from loriini.compare.results import chosen, compare_trainings, differences_from, with_mean
from loriini.compare.trainings import Training
from loriini.evaluate.intervals import differences_by_domain
from loriini.evaluate.runs import ScoredModel, evaluate_runs, shared_heldout
from loriini.evaluate.settings import EvaluationSettings
from loriini.recipes import find_recipe
from loriini.train.corpora import SMALL_VOCABULARY
from loriini.train.records.metrics import METRICS, read_records


def test_every_cell_is_scored_on_the_same_tokens(compared: Compared) -> None:
    results = compared.results
    cells = {(cell["name"], cell["seed"]): cell for cell in results["cells"]}
    assert [*cells] == [(name, seed) for seed in (0, 1) for name in ("dense", "lory", "smear")]
    assert {cell["skip"] for cell in cells.values()} == {results["heldout"]["skip"]} == {8}
    assert len({str(cell["heldout_tokens"]) for cell in cells.values()}) == 1


def test_a_cell_holds_what_its_training_measured(compared: Compared) -> None:
    folder = compared.folder("lory", 0)
    metrics = read_records(folder / METRICS)
    cell = next(cell for cell in compared.results["cells"] if cell["folder"] == folder.name)
    assert (cell["state"], cell["steps"], cell["tokens"]) == ("finished", 12, 12 * 2 * 32)
    assert cell["training_loss"] == metrics[-1]["loss"]  # a tenth of twelve steps is one
    assert cell["curve"]["loss"] == [m["loss"] for m in metrics]
    assert cell["seconds"] == pytest.approx(sum(64 / m["tokens_per_second"] for m in metrics))
    assert cell["tokens_per_second"] == pytest.approx(median([m["tokens_per_second"] for m in metrics[6:]]))
    # one dense step of twelve, then the mixture, whose merging costs more
    assert [m["experts"] for m in metrics] == [1] + 11 * [3]
    dense = next(cell for cell in compared.results["cells"] if cell["name"] == "dense")
    expected = 64 * (dense["flops_per_token"] + 11 * cell["flops_per_token"])
    assert cell["flops_per_token"] > dense["flops_per_token"]
    assert cell["flops"] == pytest.approx(expected) == cell["curve"]["flops"][-1]
    assert cell["experts_per_decision"] == pytest.approx(math.exp(metrics[-1]["gate_entropy"][0]), rel=1e-3)


def test_differences_have_an_interval_over_seeds_and_one_over_text(compared: Compared) -> None:
    lory = compared.of("lory")
    cells = {(c["name"], c["seed"]): c for c in compared.results["cells"]}
    for domain in ("odd", "even"):
        logs = [
            math.log(cells["lory", seed]["perplexity"][domain] / cells["dense", seed]["perplexity"][domain])
            for seed in (0, 1)
        ]
        found = lory["difference"][domain]
        assert found["change"] == pytest.approx(math.expm1(fmean(logs)))
        half = 12.7062 * abs(logs[0] - logs[1]) / 2
        assert found["seeds"]["high"] == pytest.approx(math.expm1(fmean(logs) + half), rel=1e-4)
        assert found["documents"]["change"] == pytest.approx(found["change"])
        assert found["documents"]["low"] <= found["change"] <= found["documents"]["high"]
    overall = [cells["lory", s]["mean_perplexity"] / cells["dense", s]["mean_perplexity"] for s in (0, 1)]
    assert lory["difference"]["all"]["change"] == pytest.approx(math.sqrt(math.prod(overall)) - 1)
    assert "difference" not in compared.of("dense")


def test_what_is_not_causal_is_compared_with_nothing(compared: Compared) -> None:
    smear = compared.of("smear")
    assert smear["causality"] == "none"
    assert "perplexity" in smear
    assert "difference" not in smear


def test_the_same_command_reuses_runs_and_evaluations(
    compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = compared.results
    monkeypatch.setattr("loriini.compare.measures.evaluate_on", None)
    compare_here("dense", "lory", "smear", "--seeds", 2, "--out", compared.out, *compared.arguments)
    assert compared.results == before


def test_runs_that_are_there_are_grouped_by_seed(compared: Compared, tmp_path: Path) -> None:
    folders = [compared.folder(name, seed) for name in ("dense", "lory") for seed in (0, 1)]
    compare_here(*folders, "--heldout", compared.heldout, "--out", tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert [(v["name"], v["seeds"]) for v in results["variants"]] == [("dense", [0, 1]), ("lory", [0, 1])]
    assert results["variants"][1]["difference"] == compared.of("lory")["difference"]
    compare_here(*folders, "--out", tmp_path / "training")
    page = (tmp_path / "training" / "report.html").read_text()
    assert "Training of dense and lory" in page
    assert "No model was scored on held-out text" in page


def test_a_models_folder_stands_for_its_run(compared: Compared) -> None:
    folder = compared.folder("lory", 0)
    assert existing_trainings([folder / "model"]) == existing_trainings([folder])


def test_unequal_runs_are_named_by_what_differs(compared: Compared, tmp_path: Path) -> None:
    longer = [*compared.arguments, "--steps", "14"]
    compare_here("lory", "--seeds", 1, "--out", tmp_path, *longer)
    (cell,) = json.loads((tmp_path / "results.json").read_text())["cells"]
    trainings = existing_trainings([compared.folder("lory", 0), tmp_path / "runs" / cell["folder"]])
    assert [training.variant for training in trainings] == ["lory steps=12", "lory steps=14"]
    results = compare_trainings(trainings, {}, {})
    assert "The runs differ in steps: 12 (lory steps=12); 14 (lory steps=14)." in results["remarks"]


def test_a_run_whose_losses_are_not_finite_is_left_out(compared: Compared, tmp_path: Path) -> None:
    """Finite weights can compute infinite logits."""
    broken = tmp_path / compared.folder("lory", 1).name
    shutil.copytree(compared.folder("lory", 1), broken)
    weights = broken / "model" / "model.safetensors"
    tensors = load_file(weights)
    tensors["lm_head.weight"] *= 1e38
    save_file(tensors, weights, {"format": "pt"})
    folders = [compared.folder("dense", 0), compared.folder("dense", 1), compared.folder("lory", 0), broken]
    evaluation = EvaluationSettings((str(compared.heldout),), skip=8)
    heldout = shared_heldout(list(map(ScoredModel.from_run, folders)), evaluation)
    results = measure_trainings(existing_trainings(folders), heldout, {}, tmp_path / "cache")
    assert "lory, seed 1: its loss on held-out text is not finite; left out." in results["remarks"]
    lory = next(v for v in results["variants"] if v["name"] == "lory")
    cell = next(c for c in results["cells"] if (c["name"], c["seed"]) == ("lory", 0))
    assert lory["perplexity"]["all"]["mean"] == pytest.approx(cell["mean_perplexity"])
    json.dumps(results, allow_nan=False)
    with pytest.raises(InputError, match=r"the losses on domain .* are not finite"):
        evaluate_runs([broken], evaluation)


def test_a_diverged_run_is_a_result(compared: Compared, tmp_path: Path) -> None:
    (training,) = existing_trainings([compared.folder("lory", 0)])
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / RUN).write_text((training.folder / RUN).read_text())
    lines = (training.folder / METRICS).read_text().splitlines()
    skipped = [json.dumps({**json.loads(line), "loss": None, "skipped": True}) for line in lines]
    (broken / METRICS).write_text("\n".join(skipped) + "\n")
    results = compare_trainings([training, replace(training, folder=broken)], {}, {})
    assert results["cells"][1]["state"] == "diverged"
    assert results["cells"][1]["training_loss"] is None
    assert "lory, seed 0 diverged after 12 steps." in results["remarks"]
    json.dumps(results, allow_nan=False)
    alone = compare_trainings([replace(training, folder=broken)], {}, {})
    assert alone["variants"][0]["finished_seeds"] == []
    dense_only = [json.dumps({**json.loads(line), "experts": 1}) for line in skipped[:1] * 8]
    (broken / METRICS).write_text("\n".join(dense_only) + "\n")
    other = replace(training, folder=broken)
    for order in ([training, other], [other, training]):
        (variant,) = compare_trainings(order, {}, {})["variants"]
        assert variant["experts"] == 3
        assert variant["flops_per_token"] == compared.of("lory")["flops_per_token"]


def test_bad_input_is_refused_in_a_line(
    compared: Compared, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = tmp_path / "all.jsonl"
    every.write_text('{"text": "a text of the domain called all"}\n')
    (tmp_path / "not-a-run").mkdir()
    no_metrics, other_vocabulary = tmp_path / "no-metrics", tmp_path / "other"
    dense = compared.folder("dense", 0)
    for folder, change in ((no_metrics, {}), (other_vocabulary, {"vocab_size": 77})):
        folder.mkdir()
        (folder / RUN).write_text(json.dumps({**json.loads((dense / RUN).read_text()), **change}))
    corpus, heldout = ("--corpus", compared.corpus), ("--heldout", compared.heldout)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aoe").symlink_to(compared.folder("lory", 0))
    for names, options, message in (
        (["dense", "aoe"], [*heldout], "aoe: a design, and a run's folder here; write ./aoe for the run"),
        (["lory"], ["--recipe", "0.3b-dense", *heldout], "recipe 0.3b-dense needs a corpus"),
        (["lory"], [*corpus, *heldout, *overrides(), "--jobs", 999], "--jobs 999: give 1 to"),
        (["lory"], [*corpus], "--heldout is missing"),
        (["lory"], [*corpus, *heldout, every, *overrides()], "a domain is called 'all', the name of what"),
        (["lory"], [*corpus, *heldout, *overrides(), "--skip", 32], "the first 32 are skipped"),
        (["lory", dense], [], "lory: give designs or folders of runs, not both"),
        ([dense], ["--seeds", 2], "--seeds: these runs are trained already; leave it out"),
        ([dense], ["--commands"], "--commands: these runs are trained already; leave it out"),
        ([dense], ["--steps", 2], "--steps: these runs are trained already; leave it out"),
        ([dense], ["--skip", 3], "--skip: is for --heldout; give that too, or leave this out"),
        ([tmp_path / "not-a-run"], [], "not-a-run: no run here (no run.json)"),
        ([no_metrics], [], f"no-metrics: has no {METRICS}"),
        ([dense, other_vocabulary], [], "its vocabulary is not that of"),
    ):
        ended = call(capsys, "compare", *names, "--out", tmp_path / "out", *options)
        assert_refused(ended, message)
    assert not (tmp_path / "out" / "results.json").exists()


def test_a_dry_run_lists_every_cell_with_its_state(
    compared: Compared, capsys: Captured, tmp_path: Path
) -> None:
    arguments = ("--seeds", 3, "--out", compared.out, "--dry-run", *compared.arguments)
    ended = call(capsys, "compare", "dense", "lory", *arguments)
    head, *rows = [line.split() for line in ended.out.splitlines()]
    assert head == ["training", "seed", "parameters", "active", "tokens", "petaflop", "state"]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        (name, str(seed), "new" if seed == 2 else "finished")
        for seed in range(3)
        for name in ("dense", "lory")
    ]
    cell = next(cell for cell in compared.results["cells"] if cell["name"] == "lory")
    total, active, tokens = (int(value.replace(",", "")) for value in rows[1][2:5])
    assert {"total": total, "active": active} == cell["parameters"]
    assert tokens == 768
    small = call(capsys, "compare", "lory", "--dry-run", "--seeds", 1, "--out", tmp_path / "none")
    parameters, state = small.out.split()[9], small.out.split()[-1]
    (lory,) = make_trainings(("lory",), find_recipe("tiny"), (), {}, seeds=1)
    total, _ = lory.run.config(SMALL_VOCABULARY).parameters()
    assert (parameters, state) == (f"{total:,}", "new")
    assert not (tmp_path / "none").exists()


def test_commands_train_what_is_left_anywhere(compared: Compared, capsys: Captured, tmp_path: Path) -> None:
    out = shutil.copytree(compared.out, tmp_path / "out")
    arguments = ("dense", "lory", "--seeds", 3, "--out", out, *compared.arguments)
    ended = call(capsys, "compare", *arguments, "--commands")
    commands = [shlex.split(line) for line in ended.out.splitlines()]
    assert [command[:3] for command in commands] == 2 * [["loriini", "train", "--resume"]]
    for command in commands:
        main(command[1:])
    assert call(capsys, "compare", *arguments, "--commands").out == ""
    compare_here(*arguments)
    cells = json.loads((out / "results.json").read_text())["cells"]
    assert [cell["state"] for cell in cells] == 6 * ["finished"]
    assert {Path(command[3]).name for command in commands} == {
        cell["folder"] for cell in cells if cell["seed"] == 2
    }
    both = call(capsys, "compare", *arguments, "--commands", "--dry-run")
    assert_refused(both, "--commands: --dry-run makes no folders")


def test_a_failed_cell_is_named_and_the_others_are_reported(
    compared: Compared, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_but_first(trainings: Sequence[Training], jobs: int) -> dict[Path, str]:
        trainings[0].folder.mkdir(parents=True, exist_ok=True)
        (trainings[0].folder / METRICS).touch()  # training makes it before its first step
        all_trained_here(trainings[1:])
        return {trainings[0].folder: "out of luck"}

    for names, states in ((["lory"], ["failed"]), (["lory", "dense"], ["failed", "finished"])):
        monkeypatch.setattr(job, "train_all", all_but_first)
        arguments = ("--seeds", 1, "--out", tmp_path, *compared.arguments)
        ended = call(capsys, "compare", *names, *arguments)
        assert ended.code == 1
        text = f"1 of {len(names)} trainings failed (lory, seed 0: out of luck); the same command tries them"
        assert text in ended.err.splitlines()[-1]
        results = json.loads((tmp_path / "results.json").read_text())
        assert [cell["state"] for cell in results["cells"]] == states
        assert "lory, seed 0 failed: out of luck." in (tmp_path / "report.html").read_text()


def variant(design: str, settings: Mapping[str, str], seeds: Sequence[int], loss: float) -> dict[str, Any]:
    """A variant over the seeds that finished."""
    name = " ".join([design, *settings.values()])
    one = {"name": name, "design": design, "settings": settings, "finished_seeds": [*seeds]}
    return {**one, "training_loss": {"mean": loss}}


def test_the_best_rate_is_chosen_by_training_loss() -> None:
    def swept(design: str, losses: Sequence[float], segment: str = "8") -> list[dict[str, Any]]:
        settings = [
            {"routing.segment_length": segment, "optimizer.learning_rate": f"{i}e-3"}
            for i in range(1, 1 + len(losses))
        ]
        return [variant(design, own, [0], loss) for own, loss in zip(settings, losses, strict=True)]

    first, second, third = swept("a", (3, 2, 2.5)), swept("b", (3, 2, 1)), swept("b", (1, 2, 3), "16")
    assert chosen([*first, *second, *third]) == {"a 8 2e-3", "b 8 3e-3", "b 16 1e-3"}
    assert chosen([{**first[0], "width": 32}, {**first[1], "width": 64}]) == {"a 8 1e-3", "a 8 2e-3"}


def test_a_rate_at_which_seeds_diverged_is_not_chosen_for_its_survivors() -> None:
    def at_rate(rate: str, finished: Sequence[int], loss: float) -> dict[str, Any]:
        return variant("a", {"optimizer.learning_rate": rate}, finished, loss)

    family = [at_rate("1e-3", range(3), 3), at_rate("2e-3", range(3), 2.5), at_rate("4e-3", [1], 2)]
    assert chosen(family) == {"a 2e-3"}
    none = at_rate("8e-3", [], 1)
    del none["training_loss"]
    assert chosen([none, family[2]]) == {"a 4e-3"}


def score(loss: float) -> dict[str, Any]:
    """A training on a domain of three instances."""
    return {"perplexity": with_mean({"a": math.exp(loss)}), "instance_losses": {"a": [loss] * 3}}


def test_a_seed_whose_perplexity_is_not_finite_is_in_no_difference() -> None:
    scores = {
        "dense": {0: score(2.0), 1: score(2.0), 2: score(math.nan)},
        "lory": {0: score(1.0), 1: score(math.inf), 2: score(1.0)},
        "diverged": {0: score(math.nan)},
    }
    found = differences_from("dense", scores, differences_by_domain)
    assert set(found) == {"lory"}
    assert found["lory"]["paired_seeds"] == [0]
    assert math.isclose(found["lory"]["difference"]["a"]["change"], math.expm1(-1.0))
