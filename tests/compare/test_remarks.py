"""What is unequal in a comparison is said, and not compared."""

from dataclasses import replace
from typing import Any

import pytest

from loriini.compare.cells import Cell
from loriini.compare.remarks import remarks, unequal_losses, unequal_training, unequal_warmups
from loriini.compare.results import comparison_caveats
from loriini.compare.sections import first_segment_caveat
from loriini.train.optimizer import OptimizerConfig
from runs import tiny_run


def test_mixtures_with_and_without_a_dense_warmup_are_named() -> None:
    cells = [
        {"name": "dense"},
        {"name": "lory", "dense_share": 0.05},
        {"name": "lory", "dense_share": 0.05},
        {"name": "aoe", "dense_share": 0.0},
    ]
    (remark,) = unequal_warmups(cells)
    assert remark.endswith(": 5% of the steps (lory); 0% of the steps (aoe).")
    assert not list(unequal_warmups(cells[:3]))


def test_settings_of_training_that_differ_are_named() -> None:
    dense, lory = tiny_run("dense"), tiny_run("lory", precision="bf16")
    faster = replace(lory, optimizer=replace(lory.optimizer, learning_rate=0.5))
    scaled = replace(lory, model=replace(lory.model, rope_scaling={"rope_type": "linear", "factor": 2.0}))
    cells = [Cell("dense", replace(dense, precision="fp32")), Cell("lory", lory), Cell("faster", faster)]
    rate = dense.optimizer.learning_rate
    assert list(unequal_training(cells)) == [
        f"The runs differ in optimizer.learning_rate: {rate} (dense and lory); 0.5 (faster).",
        "The runs differ in precision: fp32 (dense); bf16 (lory and faster).",
    ]
    assert "The runs differ in model.rope_scaling.factor: none (lory); 2.0 (scaled)." in list(
        unequal_training([Cell("lory", lory), Cell("scaled", scaled)])
    )


def test_the_model_that_a_run_started_from_is_named_instead_of_what_follows_from_it() -> None:
    lory = tiny_run("lory")
    shape = replace(lory.model, vocab_size=320, head_dim=8, max_position_embeddings=64)
    started = replace(lory, init="/somewhere/llama", init_digest="1a2b", model=shape)
    assert list(unequal_training([Cell("lory", lory), Cell("upcycled", started)])) == [
        "The runs differ in the model that they start from: none (lory); llama, 1a2b (upcycled)."
    ]


def test_settings_by_which_designs_sizes_and_grids_differ_are_not() -> None:
    rates = {rate: replace(OptimizerConfig(), learning_rate=rate) for rate in (0.1, 0.2)}
    grid = [
        Cell(design, replace(tiny_run(design), optimizer=rates[rate]), {"optimizer.learning_rate": str(rate)})
        for design in ("dense", "mixtral")
        for rate in rates
    ]
    assert not list(unequal_training(grid))
    sizes = [Cell("dense", replace(tiny_run(), optimizer=rates[rate]), width=int(9 * rate)) for rate in rates]
    assert not list(unequal_training(sizes))


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


def test_what_counts_otherwise_is_named() -> None:
    unlike = {"dense": {}, "relu": {"experts_vary": True}, "skips": {"loss_skips": 64}}
    about = {"seed": 0, "state": "finished", "tokens": 10.0}
    cells = [{"name": name, **about, **own} for name, own in unlike.items()]
    (said,) = unequal_losses(cells)
    assert said.endswith("not compared with the others': skips (64).")
    assert not list(unequal_losses(cells[:2]))
    trained = [{**one, "parameters": {"active": 5}, "planned_steps": 1, "batch_size": 1} for one in cells]
    trained = [{**one, "length": 1, "corpus_digest": "a"} for one in trained]
    assert any("experts a token of relu passes through varies" in remark for remark in remarks(trained))
    counted = {"name": "lory", "training_causality": "after_first_segment"}
    assert "lory" in first_segment_caveat([counted])
    assert not first_segment_caveat([{**counted, "loss_skips": 64}])
