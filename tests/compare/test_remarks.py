"""What is unequal in a comparison is said, and not compared."""

from dataclasses import replace
from typing import Any

import pytest

from loriini.compare.cells import Cell
from loriini.compare.remarks import remarks, unequal_settings
from loriini.compare.results import comparison_caveats
from loriini.compare.sections import first_segment_caveat
from loriini.train.optimizer import OptimizerConfig
from runs import tiny_run


def test_settings_of_training_that_differ_are_named() -> None:
    dense, lory = tiny_run("dense"), tiny_run("lory", precision="bf16")
    faster = replace(lory, optimizer=replace(lory.optimizer, learning_rate=0.5))
    scaled = replace(lory, model=replace(lory.model, rope_scaling={"rope_type": "linear", "factor": 2.0}))
    cells = [Cell("dense", replace(dense, precision="fp32")), Cell("lory", lory), Cell("faster", faster)]
    rate = dense.optimizer.learning_rate
    assert list(unequal_settings(cells)) == [
        f"The runs differ in optimizer.learning_rate: {rate} (dense and lory); 0.5 (faster).",
        "The runs differ in precision: fp32 (dense); bf16 (lory and faster).",
    ]
    assert "The runs differ in model.rope_scaling.factor: none (lory); 2.0 (scaled)." in list(
        unequal_settings([Cell("lory", lory), Cell("scaled", scaled)])
    )


def test_settings_by_which_designs_sizes_and_grids_differ_are_not() -> None:
    rates = {rate: replace(OptimizerConfig(), learning_rate=rate) for rate in (0.1, 0.2)}
    grid = [
        Cell(design, replace(tiny_run(design), optimizer=rates[rate]), {"optimizer.learning_rate": str(rate)})
        for design in ("dense", "mixtral")
        for rate in rates
    ]
    assert not list(unequal_settings(grid))
    sizes = [Cell("dense", replace(tiny_run(), optimizer=rates[rate]), width=int(9 * rate)) for rate in rates]
    assert not list(unequal_settings(sizes))


@pytest.mark.parametrize(
    ("design", "changes", "expected"),
    [
        ("dense", {}, {}),
        ("lory", {}, {}),
        ("lory", {"first_segment": "skip_loss"}, {"loss_skips": 8}),
        ("mixtral", {}, {}),
        ("mixtral", {"selection": "top_p"}, {"experts_vary": True}),
        ("dense", {"selection": "top_p"}, {}),
    ],
)
def test_what_a_design_does_not_share_with_others(
    design: str, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    run = tiny_run(design)
    run = replace(run, routing=replace(run.routing, **changes))
    assert comparison_caveats(run.config(100, eos_token_id=0)) == expected


def test_what_varies_by_token_and_who_counts_segment_1_is_named() -> None:
    unlike = {"dense": {}, "relu": {"experts_vary": True}}
    about = {"seed": 0, "state": "finished", "parameters": {"active": 5}, "corpus_digest": "a"}
    cells = [{"name": name, **about, **own} for name, own in unlike.items()]
    (said,) = remarks(cells)
    assert "experts a token of relu passes through varies" in said
    larger = {**cells[0], "name": "large", "parameters": {"active": 6}, "corpus_digest": "b"}
    (corpora, sizes) = remarks([cells[0], larger])
    assert "corpus" in corpora
    assert "dense 5, large 6" in sizes
    counted = {"name": "lory", "training_causality": "after_first_segment"}
    assert "lory" in first_segment_caveat([counted])
    assert not first_segment_caveat([{**counted, "loss_skips": 64}])
