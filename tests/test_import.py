"""`import loriini`: it loads nothing heavy, and transformers' Auto classes know the model after it."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import loriini
from loriini import DESIGNS, LoriiniConfig, LoriiniForCausalLM

LIGHT = "import sys, loriini; assert not {'numpy', 'torch', 'transformers'} & sys.modules.keys()"
NEW = "from transformers import AutoConfig; print(AutoConfig.for_model('loriini', num_experts=3).num_experts)"
LOAD = "print(type(AutoModelForCausalLM.from_pretrained(sys.argv[1])).__name__)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was saved."""
    config = LoriiniConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_experts=2,
        routing=DESIGNS["lory"],
    )
    path = tmp_path_factory.mktemp("model")
    LoriiniForCausalLM(config).save_pretrained(path)
    return path


@pytest.mark.parametrize(
    "lines",
    [
        (LIGHT, NEW, "from transformers import AutoModelForCausalLM", LOAD),
        ("import sys; from transformers import AutoModelForCausalLM", "import loriini", NEW, LOAD),
    ],
    ids=["loriini first", "transformers first"],
)
def test_auto_classes_know_the_model_in_both_import_orders(lines: tuple[str, ...], folder: Path) -> None:
    command = [sys.executable, "-c", "\n".join(lines), str(folder)]
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
