"""TRL's trainers on a tiny model: a few steps of each."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from test_other_trainers import arguments, losses
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from loriini import LoriiniForCausalLM, PromptCollator
from runs import EOS, VOCABULARY, tiny_run, write_tokenizer

trl = pytest.importorskip("trl", reason="trl is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs, of each other's deprecations
PROMPTS = [f"w{i} w{i + 1} w{i + 2}" for i in range(8)]
ANSWERS = [f" w{i + 3} w{i + 4}" for i in range(8)]


@pytest.fixture
def tokenizer(tmp_path: Path) -> PreTrainedTokenizerBase:
    loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(write_tokenizer(tmp_path / "tokenizer"))
    loaded.pad_token = loaded.eos_token
    return loaded


def model(design: str) -> LoriiniForCausalLM:
    torch.manual_seed(0)
    return LoriiniForCausalLM(tiny_run(design).config(VOCABULARY, EOS))


def settings(kind: type, folder: Path, **changes: Any) -> Any:
    """Arguments of a trainer for two steps on a CPU."""
    own = {"max_steps": 2, "per_device_train_batch_size": 4, "bf16": False, "label_names": None}
    return arguments(folder, kind, **{**own, **changes})


def check(trainer: Any, before: LoriiniForCausalLM) -> None:
    """It trains: finite losses, and weights of experts that moved."""
    trainer.train()
    assert len(losses(trainer)) == 2
    assert all(map(math.isfinite, losses(trainer)))
    moved = trainer.model.model.mixtures[0].experts.down_proj
    assert not torch.equal(moved, before.model.mixtures[0].experts.down_proj)


@pytest.mark.parametrize(
    ("design", "collator"), [("mixtral", None), ("lory", PromptCollator(pad_token_id=EOS))]
)
def test_sft(
    design: str, collator: PromptCollator | None, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    examples = Dataset.from_dict({"prompt": PROMPTS, "completion": ANSWERS})
    trainer = trl.SFTTrainer(
        model(design),
        settings(trl.SFTConfig, tmp_path, max_length=16),
        train_dataset=examples,
        eval_dataset=examples,
        processing_class=tokenizer,
        data_collator=collator,
    )
    check(trainer, model(design))
    assert math.isfinite(trainer.evaluate()["eval_loss"])


def test_dpo(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    pairs = Dataset.from_dict({"prompt": PROMPTS, "chosen": ANSWERS, "rejected": ANSWERS[::-1]})
    check(
        trl.DPOTrainer(
            model("lory"),
            ref_model=model("lory"),
            args=settings(trl.DPOConfig, tmp_path),
            train_dataset=pairs,
            processing_class=tokenizer,
        ),
        model("lory"),
    )


def test_sft_packs_documents(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    texts = [f"{prompt}{answer}" for prompt, answer in zip(PROMPTS, ANSWERS, strict=True)]
    trained = model("lory")
    packed: list[Any] = []
    trained.register_forward_pre_hook(
        lambda _, args, kwargs: packed.append(kwargs["position_ids"]), with_kwargs=True
    )
    trainer = trl.SFTTrainer(
        trained,
        settings(trl.SFTConfig, tmp_path, max_length=16, packing=True, per_device_train_batch_size=1),
        train_dataset=Dataset.from_dict({"text": texts * 4}),
        processing_class=tokenizer,
    )
    check(trainer, model("lory"))
    assert all((ids == 0).sum() > 1 for ids in packed)
