"""Offloading and adapters act on parameters around `forward`; every design computes the same under them."""

from pathlib import Path

import pytest
import torch
from accelerate import cpu_offload, disk_offload
from peft import LoraConfig, get_peft_model

from loriini import LoriiniForCausalLM
from tiny import EVERY, label_arguments, over_blocks, random_ids, run, tiny_model

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated",  # peft asks transformers by its old name
    "ignore:The following device_map keys do not match any submodules",  # a buffer's, which is needed too
)


@pytest.mark.parametrize(("name", "block"), over_blocks(EVERY))
def test_an_offloaded_layer_computes_the_same(name: str, block: str, tmp_path: Path) -> None:
    model, ids = tiny_model(name, block=block), random_ids()
    with torch.no_grad():
        expected = run(model, ids).logits
        generated = run_generate(model, ids)
        disk_offload(model.model.layers[1], tmp_path, execution_device="cpu")
        cpu_offload(model.model.layers[0], execution_device="cpu")
        assert all(weight.is_meta for weight in model.model.layers.parameters())
        torch.testing.assert_close(run(model, ids).logits, expected, rtol=0, atol=0)
        assert torch.equal(run_generate(model, ids), generated)


def run_generate(model: LoriiniForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    labels = label_arguments(model, len(ids))
    tokens: torch.Tensor = model.generate(ids, max_new_tokens=2, do_sample=False, **labels)
    return tokens


def test_a_device_map_loads_layers_to_disk(tmp_path: Path) -> None:
    model, ids = tiny_model("deepseek-v3"), random_ids()
    model.save_pretrained(tmp_path / "model")
    places = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.positions": "cpu", "lm_head": "cpu"}
    places |= {"model.layers.0": "cpu", "model.layers.1": "disk"}
    loaded = LoriiniForCausalLM.from_pretrained(
        tmp_path / "model", device_map=places, offload_folder=tmp_path / "offloaded"
    )
    assert loaded.model.layers[1].mlp.experts.up_proj.is_meta
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits)


def test_an_adapter_of_the_output_head_is_trained_by_the_fused_loss_too() -> None:
    model, ids = tiny_model("lory"), random_ids()
    adapted = get_peft_model(model, LoraConfig(target_modules=["lm_head"], init_lora_weights=False)).train()
    losses = [adapted(input_ids=ids, labels=ids, skip_logits=skip).loss for skip in (False, True)]
    torch.testing.assert_close(losses[1], losses[0])
    losses[1].backward()
    assert all(p.grad is not None for name, p in adapted.named_parameters() if "lora" in name)


def test_an_offloaded_output_head_computes_the_fused_loss() -> None:
    model, ids = tiny_model("lory"), random_ids()
    expected = model(ids, labels=ids, skip_logits=True).loss
    cpu_offload(model.lm_head, execution_device="cpu")
    torch.testing.assert_close(model(ids, labels=ids, skip_logits=True).loss, expected)


WEIGHTS = {"llama": ["gate_proj", "up_proj", "down_proj"], "gpt2": ["up_proj", "down_proj"]}


@pytest.mark.parametrize(
    ("name", "block"),
    [("lory", "llama"), ("mixtral", "llama"), ("aoe", "llama"), ("deepseek-v3", "llama"), ("lory", "gpt2")],
)
def test_lora_trains_the_experts_and_merges_into_them(name: str, block: str) -> None:
    base, ids = tiny_model(name, block=block), random_ids()
    targets = [f"experts.{weight}" for weight in WEIGHTS[block]]
    lora = LoraConfig(r=2, target_modules=[], target_parameters=targets)
    model = get_peft_model(base, lora).train()
    adapters = {key: weight for key, weight in model.named_parameters() if "lora_" in key}
    assert {key.split(".mlp.")[1].split(".")[0] for key in adapters} == {"experts"}
    for weight in adapters.values():
        torch.nn.init.normal_(weight, std=0.3)
    model(input_ids=ids, labels=ids).loss.backward()
    assert len(adapters) == 2 * len(targets) * 2  # layers, parameters, factors
    assert all(weight.grad.any() for weight in adapters.values())
    assert {key for key, weight in model.named_parameters() if weight.grad is not None} == set(adapters)
    with torch.no_grad():
        expected = model.eval()(input_ids=ids).logits
        with model.disable_adapter():
            assert not torch.allclose(model(input_ids=ids).logits, expected, atol=1e-2)
        generated = run_generate(base, ids)
        merged = model.merge_and_unload()
        torch.testing.assert_close(merged(ids).logits, expected, rtol=1e-4, atol=1e-4)
        assert isinstance(merged, LoriiniForCausalLM)
        assert torch.equal(run_generate(merged, ids), generated)


def test_data_parallel_is_refused_with_the_remedy() -> None:
    """What `nn.DataParallel` calls before the first step on several GPUs."""
    with pytest.raises(RuntimeError, match="start the script with torchrun, or set CUDA_VISIBLE_DEVICES=0"):
        tiny_model()._replicate_for_data_parallel()
