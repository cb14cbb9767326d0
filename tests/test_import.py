"""`import loriini`: it loads nothing heavy, and transformers' Auto classes know the model after it."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import loriini
from loriini import LoriiniConfig, LoriiniForCausalLM

LIGHT = "import sys, loriini; assert not {'numpy', 'torch', 'transformers'} & sys.modules.keys()"
KNOWN = """
from transformers import AutoConfig, AutoModelForCausalLM
print(AutoConfig.for_model("loriini", num_experts=3).num_experts)
print(type(AutoModelForCausalLM.from_pretrained(sys.argv[1])).__name__)
"""
"""What transformers makes by a name and of a saved model."""


def test_auto_classes_know_the_model_where_loriini_is_imported_first(tmp_path: Path) -> None:
    """Where transformers is, `tests/model/test_shim.py` does."""
    config = LoriiniConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2)
    LoriiniForCausalLM(config).save_pretrained(tmp_path)
    command = [sys.executable, "-c", "\n".join([LIGHT, KNOWN]), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["3", "LoriiniForCausalLM"], done.stderr


def test_every_public_name_is_that_of_its_module() -> None:
    modules = (
        *("loriini.model.generate.collator", "loriini.data.prepare.similarity.walks", "loriini.model"),
        *("loriini.model.weights.loading", "loriini.routing", "loriini.train.config"),
    )
    for name in loriini.__all__:
        homes = [getattr(import_module(module), name, None) for module in modules]
        assert any(getattr(loriini, name) is there for there in homes), name
    assert set(loriini.__all__) < set(dir(loriini))
    with pytest.raises(AttributeError, match="'loriini' has no attribute 'Walk'"):
        loriini.Walk  # noqa: B018
