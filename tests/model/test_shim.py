"""A saved model loads where Loriini is installed but not imported; elsewhere it says what to install."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM

from loriini import LoriiniConfig, LoriiniModel
from loriini.model.weights.shim import AUTO_MAP
from test_import import KNOWN
from tiny import random_ids, tiny_model

LOAD = """
import sys
from transformers import AutoModelForCausalLM
assert "loriini" not in sys.modules
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
model.save_pretrained(sys.argv[2])
"""
"""With KNOWN, transformers is imported before Loriini."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shim") / "model"
    tiny_model("lory").save_pretrained(path)
    return path


def test_it_loads_where_loriini_is_not_imported_and_is_saved_the_same(folder: Path) -> None:
    again = folder.parent / "again"
    environment = os.environ | {"HF_MODULES_CACHE": str(folder.parent / "modules")}
    command = [sys.executable, "-c", LOAD + KNOWN, str(folder), str(again)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == ["3", "LoriiniForCausalLM"], done.stderr
    assert {path.name for path in again.iterdir()} == {path.name for path in folder.iterdir()}
    assert json.loads((again / "config.json").read_text())["auto_map"] == AUTO_MAP
    ids = random_ids()
    models = [AutoModelForCausalLM.from_pretrained(path).eval() for path in (folder, again)]
    assert torch.equal(*(model(ids).logits for model in models))


def test_one_line_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "loriini":
            raise ModuleNotFoundError(name=name)

    for name in [name for name in sys.modules if name.split(".")[0] == "loriini"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [SimpleNamespace(find_spec=find_spec), *sys.meta_path])
    with pytest.raises(ImportError, match="needs the package loriini"):
        runpy.run_path(str(folder / "modeling_loriini.py"))


def test_auto_model_is_the_decoder(folder: Path) -> None:
    decoder, model = AutoModel.from_pretrained(folder).eval(), AutoModelForCausalLM.from_pretrained(folder)
    assert isinstance(decoder, LoriiniModel)
    ids = random_ids()
    assert torch.equal(decoder(ids).last_hidden_state, model.eval().model(ids).last_hidden_state)


def test_a_configuration_alone_has_the_shim(tmp_path: Path) -> None:
    LoriiniConfig(num_experts=2).save_pretrained(tmp_path / "new")
    names = {"config.json", "configuration_loriini.py", "modeling_loriini.py"}
    assert {path.name for path in (tmp_path / "new").iterdir()} == names
