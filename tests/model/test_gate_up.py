"""Model folders of earlier versions, which held gate and up in one tensor."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from loriini import LoriiniForCausalLM, LoriiniModel
from tiny import tiny_model


def with_gate_up(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under the names and in the shapes of earlier versions."""
    old = {name: weight for name, weight in tensors.items() if not name.endswith(("gate_proj", "up_proj"))}
    for name, gate in tensors.items():
        if name.endswith("gate_proj"):
            up = tensors[name.replace("gate_proj", "up_proj")]
            old[name.replace("gate_proj", "gate_up_proj")] = torch.stack([gate, up], dim=1)
    return old


@pytest.mark.parametrize("name", ["lory", "deepseek-v3"])
def test_an_old_folder_loads_and_is_saved_in_the_new_form(name: str, tmp_path: Path) -> None:
    model = tiny_model(name)
    model.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    saved = load_file(weights)
    save_file(with_gate_up(saved), weights, metadata={"format": "pt"})
    loaded = LoriiniForCausalLM.from_pretrained(tmp_path)
    for key, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], weight), key
    decoder = LoriiniModel.from_pretrained(tmp_path)
    assert torch.equal(decoder.layers[1].mlp.experts.up_proj, model.model.layers[1].mlp.experts.up_proj)

    loaded.save_pretrained(tmp_path)
    with safe_open(weights, "pt") as file:
        assert set(file.keys()) == set(saved)
