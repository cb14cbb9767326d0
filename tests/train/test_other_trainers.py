"""The same model and instances in other people's trainers."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

from loriini import LoriiniForCausalLM, PromptCollator
from loriini.data.batches.dataset import InstanceDataset
from loriini.train.optimizer import OptimizerConfig, make_optimizer
from runs import EOS, VOCABULARY, Pattern, tiny_run
from tiny import gradients

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated",  # peft asks transformers by its old name
    "ignore:.*pin_memory.*no accelerator is found",
)


def arguments(folder: Path, kind: type = TrainingArguments, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "max_steps": 40,
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "label_names": ["shift_labels"],
        "dataloader_pin_memory": False,
    }
    return kind(output_dir=str(folder), **{**settings, **changes})


def losses(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_examples_are_inputs_and_their_next_tokens() -> None:
    examples = InstanceDataset(Pattern(), length=16, labelled=True)
    example = examples[4]
    assert len(examples) == len(Pattern())
    assert example["input_ids"].tolist() == [28 + 2 * i for i in range(16)]
    assert example["shift_labels"].tolist() == [28 + 2 * i for i in range(1, 17)]
    assert example["routing_labels"] == 1
    assert InstanceDataset(Pattern())[0].keys() == {"input_ids", "shift_labels"}


@pytest.mark.parametrize("design", ["mixtral", "label"])
def test_transformers_trainer_trains_saves_and_loads(design: str, tmp_path: Path) -> None:
    run = tiny_run(design)
    labels = Pattern().label_names if design == "label" else ()
    model = LoriiniForCausalLM(run.config(VOCABULARY, EOS, label_names=labels))
    examples = InstanceDataset(Pattern(), labelled=design == "label")
    settings = arguments(tmp_path, label_names=examples.label_names)
    muon = OptimizerConfig(name="muon", learning_rate=1e-2)
    optimizer = make_optimizer(model, muon) if design == "mixtral" else None  # None: the Trainer's AdamW
    trainer = Trainer(
        model, settings, train_dataset=examples, eval_dataset=examples, optimizers=(optimizer, None)
    )
    trainer.train()
    assert abs(losses(trainer)[0] - math.log(VOCABULARY)) < 0.2
    assert sum(losses(trainer)[-5:]) / 5 < 0.7 * losses(trainer)[0]
    evaluated = trainer.evaluate()["eval_loss"]
    assert evaluated < 0.7 * losses(trainer)[0]
    trainer.save_model(str(tmp_path / "model"))
    loaded = LoriiniForCausalLM.from_pretrained(tmp_path / "model")
    again = Trainer(loaded, settings, eval_dataset=examples).evaluate()["eval_loss"]
    assert again == pytest.approx(evaluated, abs=1e-6)


@pytest.mark.parametrize("name", ["lory", "smear"])
def test_trainer_passes_prompt_lengths_on(name: str, tmp_path: Path) -> None:
    model = LoriiniForCausalLM(tiny_run(name).config(VOCABULARY, EOS)).eval()
    collate = PromptCollator(pad_token_id=EOS)
    examples = [{"input_ids": list(range(n, 2 * n)), "prompt_lengths": 2} for n in (4, 5, 6, 7)]
    settings = arguments(tmp_path, label_names=None, max_steps=2)
    trainer = Trainer(model, settings, train_dataset=examples, eval_dataset=examples, data_collator=collate)
    with torch.no_grad():
        expected = model(**collate(examples)).loss.item()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-5)
    trainer.train()
    assert losses(trainer)[1] < expected


def test_peft_trains_attention_and_routers_alone_and_its_adapter_loads(tmp_path: Path) -> None:
    base = tmp_path / "base"
    LoriiniForCausalLM(tiny_run("mixtral").config(VOCABULARY, EOS)).save_pretrained(base)
    lora = LoraConfig(
        r=4, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], modules_to_save=["router"]
    )
    model = get_peft_model(LoriiniForCausalLM.from_pretrained(base), lora)
    examples = InstanceDataset(Pattern())
    trainer = Trainer(model, arguments(tmp_path, max_steps=20), train_dataset=examples)
    trainer.train()
    assert losses(trainer)[-1] < losses(trainer)[0] - 0.01
    trained = {name.split(".default")[0] for name, p in model.named_parameters() if p.requires_grad}
    assert {name.split(".")[5] for name in trained} == {"self_attn", "mlp"}
    assert all("lora_" in name or ".router." in name for name in trained)
    model.save_pretrained(tmp_path / "adapter")
    loaded = PeftModel.from_pretrained(LoriiniForCausalLM.from_pretrained(base), tmp_path / "adapter")
    batch = next(iter(DataLoader(examples, batch_size=4)))
    with torch.no_grad():
        mine, theirs = (m.eval()(**batch).logits for m in (model, loaded))
    torch.testing.assert_close(theirs, mine)
    assert not gradients(loaded)
