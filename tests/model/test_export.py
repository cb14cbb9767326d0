"""What is exported is run by transformers alone, and computes the same."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerBase

from loriini import LoriiniForCausalLM
from loriini.errors import InputError
from loriini.model.export import export_hf, export_llama
from runs import EOS, VOCABULARY, write_tokenizer
from tiny import run, tiny_model

PROMPT = [3, 1, 4, 1, 5, 9]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def model_of(design: str, **changes: int) -> LoriiniForCausalLM:
    return tiny_model(design, vocab_size=VOCABULARY, eos_token_id=EOS, bos_token_id=EOS, **changes)


def words(ids: list[int]) -> str:
    return " ".join(f"w{i}" for i in ids)


@pytest.mark.parametrize("design", ["lory", "prefix", "smear", "dense"])
@pytest.mark.parametrize("prompt", [PROMPT, PROMPT[:1], []], ids=len)
def test_a_llama_computes_what_the_model_does_after_the_prompt(
    design: str, prompt: list[int], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    model = model_of(design, num_experts=1 if design == "dense" else 4)
    folder = export_llama(model, tokenizer, words(prompt), tmp_path / "llama")
    llama = LlamaForCausalLM.from_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"
    start: Tensor = torch.tensor([prompt or [EOS]])
    ids = torch.cat([start, torch.randint(VOCABULARY, (1, 9))], 1)
    expected = model(ids, prompt_lengths=torch.tensor([start.shape[1]])).logits
    torch.testing.assert_close(llama(ids).logits, expected, rtol=1e-4, atol=1e-5)


def test_a_llama_writes_the_text_that_the_model_writes(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    model = model_of("lory")
    llama = AutoModelForCausalLM.from_pretrained(
        export_llama(model, tokenizer, words(PROMPT), tmp_path / "llama")
    )
    ids = AutoTokenizer.from_pretrained(tmp_path / "llama")(words(PROMPT), return_tensors="pt")["input_ids"]
    assert ids.tolist() == [PROMPT]
    arguments = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": EOS}
    mask = torch.ones_like(ids)
    ours, theirs = (m.generate(ids, attention_mask=mask, **arguments) for m in (model, llama))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("design", ["lory", "mixtral", "aoe", "random", "frozen", "global-top2"])
def test_a_hugging_face_folder_loads_through_the_auto_classes(
    design: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    model = model_of(design)
    folder = export_hf(model, tokenizer, tmp_path / "hf")
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert isinstance(loaded, LoriiniForCausalLM)
    ids = torch.tensor([PROMPT])
    torch.testing.assert_close(run(loaded, ids).logits, run(model, ids).logits)
    assert AutoTokenizer.from_pretrained(folder).get_vocab() == tokenizer.get_vocab()


@pytest.mark.parametrize("design", ["mixtral", "aoe", "ec-segment"])
def test_a_design_that_combines_outputs_is_no_llama(
    design: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"cannot be exported as a Llama: .*; use --to hf"):
        export_llama(model_of(design), tokenizer, words(PROMPT), tmp_path / "llama")
    assert not any(tmp_path.iterdir())


def test_nothing_that_is_there_is_overwritten(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    model, file = model_of("lory"), tmp_path / "file"
    (tmp_path / "empty").mkdir()
    folder = export_hf(model, tokenizer, tmp_path / "empty")
    file.write_text("mine")
    for there in (folder, file):
        with pytest.raises(InputError, match=f"{there}: exists and is not empty; choose another --out"):
            export_hf(model, tokenizer, there)
    assert file.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "file"}


def test_an_export_that_was_killed_is_made_anew(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    half = tmp_path / ".hf.unfinished"
    half.mkdir()
    (half / "half.safetensors").write_text("")
    folder = export_hf(model_of("lory"), tokenizer, tmp_path / "hf")
    assert not half.exists()
    assert not (folder / "half.safetensors").exists()
