"""`train RECIPE --help` lists the overrides of a recipe."""

import pytest

from cli.calls import assert_refused, call
from loriini.cli.overrides import format_overrides
from loriini.train.overrides.names import Override


def test_overrides_are_grouped_by_part() -> None:
    listed = format_overrides(
        [
            Override("steps", "int", "60", "training steps"),
            Override("model.dropout", "float", "0.0", "share of states set to 0, 10 % in GPT-2"),
            Override("model.block", "llama|gpt2", "llama", "the kind of block"),
        ]
    )
    assert [line.split() for line in listed.splitlines() if line] == [
        ["run:"],
        ["--steps", "int", "training", "steps", "(60)"],
        ["model:"],
        ["--model.dropout", "float"],
        ["share", "of", "states", "set", "to", "0,", "10", "%", "in", "GPT-2", "(0.0)"],
        ["--model.block", "llama|gpt2"],
        ["the", "kind", "of", "block", "(llama)"],
    ]


def test_help_of_a_recipe_lists_its_own_values(capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "train", "tiny-lory", "--help")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("usage: loriini train")
    for name, value in {"steps": 60, "model.num_experts": 4, "routing.segment_length": 64}.items():
        _, found, listed = ended.out.partition(f"--{name} ")
        assert found
        assert listed.partition("--")[0].rstrip().endswith(f"({value})")
    assert "RECIPE --help" in call(capsys, "train", "--help").out
    assert_refused(
        call(capsys, "train", "tiny-lori", "--help"), "no recipe is named 'tiny-lori'", "tiny-lory"
    )
