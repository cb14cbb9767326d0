"""Designs × grid × seeds as runs: what each gets, which are the same, and in which folder they lie."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from loriini.common.errors import InputError
from loriini.compare.grid import make_trainings
from loriini.compare.job import has_small_corpus
from loriini.compare.settings import CompareSettings, parse_grid
from loriini.compare.trainings import Training, run_digest, with_folders
from loriini.recipes import find_recipe
from loriini.recipes.redesign import with_design
from loriini.recipes.small import quickstart_run
from loriini.routing import DESIGNS
from loriini.routing.registry import REGISTERED
from loriini.train.corpora import TrainingCorpus
from loriini.train.overrides.apply import override
from runs import prepared

TINY = find_recipe("tiny")


def names(cells: list[Training]) -> list[tuple[str, int]]:
    return [(cell.variant, cell.seed) for cell in cells]


def test_tiny_recipes_train_on_the_standard_library() -> None:
    recipes = ("tiny", "tiny-lory", "0.3b-lory-8e")
    assert [has_small_corpus(CompareSettings(("dense",), n)) for n in recipes] == [True, True, False]


def test_a_design_varies_over_the_settings_that_it_depends_on() -> None:
    grid = parse_grid(["routing.segment_length=32,64", "optimizer.learning_rate=1e-3,2e-3"])
    cells = make_trainings(("dense", "lory", "mixtral"), TINY, ["--steps=30"], grid, seeds=2)
    rates = ("learning_rate=1e-3", "learning_rate=2e-3")
    lory = [f"lory segment_length={length} {rate}" for length in (32, 64) for rate in rates]
    variants = [f"dense {rates[0]}", f"dense {rates[1]}", *lory, *(f"mixtral {rate}" for rate in rates)]
    assert names(cells) == [(name, seed) for seed in (0, 1) for name in variants]
    last = cells[5].run
    assert (last.routing.segment_length, last.optimizer.learning_rate, last.steps) == (64, 2e-3, 30)
    router_rates = parse_grid(["optimizer.router_rate=0.5,1"])
    cells = make_trainings(("dense", "lory"), TINY, [], router_rates, seeds=1)
    assert names(cells) == [("dense", 0), ("lory router_rate=0.5", 0), ("lory router_rate=1", 0)]


def test_a_value_of_a_grid_may_be_a_list_or_an_object() -> None:
    texts = ['routing.options={"std":0.1,"x":1},{"std":0.5,"x":1}', "optimizer.betas=[0.9,0.95],[0.9,0.99]"]
    assert [*parse_grid(texts).values()] == [
        ['{"std":0.1,"x":1}', '{"std":0.5,"x":1}'],
        ["[0.9,0.95]", "[0.9,0.99]"],
    ]
    nested = '{"rope_type":"longrope","short_factor":[1.0,2.0],"long_factor":[1.0,2.0]}'
    assert parse_grid([f"model.rope_scaling={nested},none", "name=a,b]"]) == {
        "model.rope_scaling": [nested, "none"],
        "name": ["a", "b]"],
    }
    betas = make_trainings(("dense",), TINY, [], parse_grid(texts[1:]), seeds=1)
    assert [cell.run.optimizer.betas for cell in betas] == [(0.9, 0.95), (0.9, 0.99)]


def test_options_are_those_of_the_designs_that_may_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTERED["scorer"], "own", ("a",))
    monkeypatch.setitem(DESIGNS, "own", replace(DESIGNS["mixtral"], scorer="own", options={"a": 1}))
    cells = make_trainings(
        ("own", "mixtral", "dense"), TINY, [], parse_grid(["routing.options.a=2,3"]), seeds=1
    )
    assert [cell.run.routing.options for cell in cells] == [{"a": 2}, {"a": 3}, {}, {}]
    with pytest.raises(InputError, match=r"routing\.options\.b is read by nothing"):
        make_trainings(("own",), TINY, ["--routing.options.b=1"], {}, seeds=1)


def test_overrides_change_the_design_and_its_width() -> None:
    (cell,) = make_trainings(("mixtral",), TINY, ["--routing.top_k=4", "--seed=7"], {}, seeds=1)
    assert (cell.run.routing.top_k, cell.run.model.intermediate_size, cell.seed) == (4, 44 // 8 * 8 + 8, 7)
    (dense,) = make_trainings(("dense",), TINY, ["--routing.top_k=4", "--model.num_experts=16"], {}, seeds=1)
    assert dense.run == replace(with_design(TINY, "dense"), name="dense")


@pytest.mark.parametrize(
    ("designs", "overrides", "grid", "message"),
    [
        (["lorry"], [], [], "lorry: neither a design nor a run's folder; the nearest is lory"),
        (["lory"], ["--stepz=1"], [], "--stepz: no such setting; the nearest is --steps"),
        (["lory"], ["--routing=dense"], [], "--routing: the designs are the first arguments"),
        (["lory"], [], ["routing.segment_lenth=8"], "the nearest is --routing.segment_length"),
        (["lory"], [], ["optimizer.lr=8"], "--grid optimizer.lr: --optimizer.lr: no such setting"),
        (["lory"], [], ["steps=ten"], "--grid steps: --steps ten: it is not an integer"),
        (["lory"], [], ["seed=1,2"], "--grid seed: give --seeds N"),
        (["lory"], [], ["speed.compile=true"], "--grid speed.compile: it does not change what is trained"),
        (["lory"], ["--steps=9"], ["steps=1,2"], "--steps: --grid steps varies it; leave one of them out"),
        (["lory"], [], ["steps"], "give FIELD=V,V, such as routing.segment_length=64,128"),
        (["lory"], [], ["steps=1", "steps=2"], "steps was given before"),
        (["lory"], [], ["routing.load_balance=1"], "lory: --routing.load_balance 1: load_balance is const"),
        (["dense", "lory"], [], ["length=32"], "lory: the context of 32 tokens is no longer than a segment"),
    ],
)
def test_what_no_run_admits_is_refused(
    designs: list[str], overrides: list[str], grid: list[str], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        make_trainings(designs, TINY, overrides, parse_grid(grid), seeds=1)
    assert message in str(refused.value)


def test_a_folder_is_shared_by_the_settings_and_the_corpus(tmp_path: Path) -> None:
    corpus = prepared(tmp_path / "corpus", length=32).folder
    run = replace(TINY, corpus=(corpus,), length=32, routing=replace(TINY.routing, segment_length=8))
    (cell,) = make_trainings(("lory",), run, [], {}, seeds=1)
    (placed,) = with_folders([cell], tmp_path)
    assert placed.folder.name.startswith("lory-seed0-")
    in_grid = replace(cell, variant="lory segment_length=8", settings={"routing.segment_length": "8"})
    placed.folder.mkdir(parents=True)
    assert with_folders([in_grid], tmp_path) == [replace(in_grid, folder=placed.folder)]
    watched = replace(cell, run=replace(cell.run, watch=replace(cell.run.watch, every=3)))
    assert with_folders([watched], tmp_path)[0].folder == placed.folder
    for changed in (replace(cell.run, steps=61), replace(cell.run, seed=1), with_design(run, "prefix")):
        (other,) = with_folders([replace(cell, run=changed)], tmp_path)
        assert other.folder != placed.folder
    with pytest.raises(InputError, match=r"lory: the context is 64 tokens, but .* into instances of 32"):
        with_folders([replace(cell, run=replace(cell.run, length=64))], tmp_path)


CORPUS = cast(TrainingCorpus, SimpleNamespace(digest="corpus", vocab_size=64))


def test_finished_cells_keep_their_folders() -> None:
    """Another hash would train everything again that was compared with an earlier version."""
    assert run_digest(quickstart_run("lory", "small"), CORPUS) == "42f5376b"


@pytest.mark.parametrize(
    ("setting", "trains_the_same"),
    [
        ("checkpoint.keep=3", True),
        ("guard.max_skips=50", True),
        ("guard.spike=6", False),
        ("micro_batch_size=4", True),
        ("model.recompute_merge=false", True),
        ("per_expert_every=5", True),
        ("seed=1", False),
        ("speed.compile=true", True),
        ("warmup.dense_share=0.1", False),
    ],
)
def test_only_what_changes_the_training_needs_another_folder(setting: str, trains_the_same: bool) -> None:
    run = quickstart_run("lory", "small")
    changed = override(run, [f"--{setting}"])
    assert (run_digest(changed, CORPUS) == run_digest(run, CORPUS)) == trains_the_same


def test_a_micro_batch_is_trained_otherwise_where_its_units_are_compared() -> None:
    run = quickstart_run("mixtral", "small")
    assert run_digest(override(run, ["--micro_batch_size=4"]), CORPUS) != run_digest(run, CORPUS)
