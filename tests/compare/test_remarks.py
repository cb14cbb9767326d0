"""What is unequal in a comparison is said, and not compared."""

from dataclasses import replace
from typing import Any

import pytest

from loriini.compare.remarks import remarks, unequal_losses, unequal_warmups
from loriini.compare.results import unlike_others
from loriini.compare.sections import first_segments
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
    assert unlike_others(run.config(100, eos_token_id=0)) == expected


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
    assert "lory" in first_segments([counted])
    assert not first_segments([{**counted, "loss_skips": 64}])
