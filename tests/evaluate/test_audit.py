"""The audit measures what the designs claim, of models in memory and of a trained run."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from loriini import RoutingConfig
from loriini.cli import main
from loriini.evaluate.audit import audit, random_instances
from runs import tiny_run, trained
from tiny import GRID, SEGMENT, random_ids, tiny_config, tiny_model

DESIGNS = {
    **{name: tiny_config(name).routing for name in GRID},
    "lory uniform": RoutingConfig(segment_length=SEGMENT, first_segment="uniform"),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_designs_measure_as_they_declare(name: str) -> None:
    design = DESIGNS[name]
    model = tiny_model(design)
    leak = audit(model, random_instances(model))
    assert leak.measured == leak.declared == design.causality
    assert (leak.segment_1 > leak.tolerance) == (design.segmented and design.causality != "strict")
    assert (leak.later > leak.tolerance) == (design.causality == "none")


LEAKS = {"all tokens": lambda x_BLD: x_BLD.mean(1, True), "the next token": lambda x_BLD: x_BLD.roll(-1, 1)}


@pytest.mark.parametrize("leaked", LEAKS.values(), ids=LEAKS)
def test_a_leak_that_no_design_declares_is_found(leaked: Callable[[Tensor], Tensor]) -> None:
    model = tiny_model("mixtral")
    last = model.model.layers[1]
    last.register_forward_hook(lambda _, inputs, out: (out[0] + leaked(inputs[0]), out[1]))
    leak = audit(model, random_ids())
    assert (leak.declared, leak.measured) == ("strict", "none")


def test_instances_are_the_same_under_a_seed_and_fit_the_context() -> None:
    model = tiny_model(max_position_embeddings=SEGMENT)
    assert torch.equal(random_instances(model), random_instances(model))
    assert not torch.equal(random_instances(model), random_instances(model, seed=1))
    assert random_instances(model).shape == (4, SEGMENT)
    assert audit(model, random_instances(model)).measured == "after_first_segment"


def test_a_run_is_audited_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tiny_run("lory", steps=3)
    folder = str(trained(replace(run, warmup=replace(run.warmup, dense_share=0.0)), tmp_path))
    capsys.readouterr()
    main(["designs", "--audit", folder, "--json"])
    leak = json.loads(capsys.readouterr().out)
    assert leak["declared"] == leak["measured"] == "after_first_segment"
    assert leak["segment_1"] > leak["tolerance"] > leak["later"]
    main(["designs", "--audit", folder])
    assert "declared after_first_segment, measured after_first_segment" in capsys.readouterr().out
