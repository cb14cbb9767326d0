"""A run or a model becomes a folder: weights, tokenizer, card; what is there is left or refused."""

import copy
import json
import os
import shutil
import sys
import types
from pathlib import Path

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerBase

from loriini import LoriiniForCausalLM
from loriini.common.errors import InputError
from loriini.export import export
from loriini.export.export import ExportSettings, export_model, export_run
from loriini.export.probe import probe
from runs import EOS, VOCABULARY, byte_tokenizer, tiny_run, trained
from tiny import run, tiny_model

PROMPT = [3, 1, 4, 1, 5, 9]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    return trained(tiny_run(steps=2), tmp_path_factory.mktemp("run"))


def model_of(design: str, **changes: object) -> LoriiniForCausalLM:
    context = {"max_position_embeddings": 32}
    return tiny_model(design, vocab_size=VOCABULARY, eos_token_id=EOS, bos_token_id=EOS, **context, **changes)


def words(ids: list[int]) -> str:
    return " ".join(f"w{i}" for i in ids)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"to": "foo"}, "--to foo"),
        ({"to": "hf", "dtype": "int8"}, "--dtype int8"),
        ({"to": "hf", "prompt": "w1"}, "--prompt"),
    ],
)
def test_unknown_settings_and_those_without_effect_are_refused(settings: dict[str, str], named: str) -> None:
    with pytest.raises(InputError, match=named):
        ExportSettings(**settings)


@pytest.mark.parametrize(("prompt", "bos"), [(PROMPT, None), (PROMPT[:1], None), (PROMPT, 9)], ids=str)
def test_a_llama_writes_the_text_that_the_model_writes(
    prompt: list[int], bos: int | None, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    """Also after a BOS, which the tokenizers of Llama 2 and Mistral put before every text."""
    model, tokenizer, ids = model_of("lory"), copy.deepcopy(tokenizer), torch.tensor([prompt])
    if bos is not None:
        ids = torch.tensor([[bos, *prompt]])
        tokenizer.bos_token = f"w{bos}"
        opening = TemplateProcessing(single=f"w{bos} $A", special_tokens=[(f"w{bos}", bos)])
        tokenizer.backend_tokenizer.post_processor = opening
    settings = ExportSettings("llama", prompt=words(prompt))
    folder = export_model(model, tokenizer, settings, tmp_path / "llama")
    llama = LlamaForCausalLM.from_pretrained(folder)
    found = AutoTokenizer.from_pretrained(folder)(words(prompt), return_tensors="pt")["input_ids"]
    assert torch.equal(found, ids)
    arguments = {"max_new_tokens": 12, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    assert torch.equal(llama.generate(ids, **arguments), model.generate(ids, **arguments))
    assert json.loads((folder / "export.json").read_text())["max_logit_difference"] < 1e-4
    with pytest.raises(InputError, match="the prompt is empty"):
        export_model(model, tokenizer, ExportSettings("llama", prompt=""), tmp_path / "empty")


@pytest.mark.parametrize("design", ["lory", "aoe", "random", "global-top2"])
def test_a_hugging_face_folder_loads_through_the_auto_classes(
    design: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    model = model_of(design)
    folder = export_model(model, tokenizer, ExportSettings("hf"), tmp_path / "hf")
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert isinstance(loaded, LoriiniForCausalLM)
    ids = torch.tensor([PROMPT])
    torch.testing.assert_close(run(loaded, ids).logits, run(model, ids).logits)
    assert loaded.config.pad_token_id == loaded.generation_config.pad_token_id == EOS
    assert loaded.generation_config.eos_token_id == EOS
    read = AutoTokenizer.from_pretrained(folder)
    assert read.get_vocab() == tokenizer.get_vocab()
    assert (read.model_max_length, read.pad_token_id) == (32, EOS)


def test_padding_by_the_end_of_text_leaves_its_embedding_trainable(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    export_model(model_of("lory"), tokenizer, ExportSettings("hf"), tmp_path / "hf")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    ids = torch.tensor([[*PROMPT, EOS, 3]])
    loaded(ids, labels=ids).loss.backward()
    assert loaded.model.embed_tokens.weight.grad[EOS].abs().sum() > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("design", "to"), [("label", "hf"), ("random", "hf"), ("mixtral", "mixtral")])
@torch.no_grad()
def test_the_difference_is_that_of_the_weights_as_written(
    design: str, to: str, dtype: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    model = model_of(design)
    before = probe(model, None, None)
    folder = export_model(model, tokenizer, ExportSettings(to, dtype=dtype), tmp_path / "out")
    recorded = json.loads((folder / "export.json").read_text())["max_logit_difference"]
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert loaded.dtype == getattr(torch, dtype)
    assert recorded == pytest.approx(before.difference(loaded), rel=1e-6, abs=1e-7)
    assert (recorded < 1e-4) == (dtype == "float32")
    assert (f"was {recorded:.1e}" in (folder / "README.md").read_text()) == (to != "hf")


def test_logits_that_are_not_finite_are_refused(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    model = model_of("mixtral")
    with torch.no_grad():
        model.lm_head.weight.mul_(1e4)
        assert model.lm_head.weight.abs().max() < 60_000
        model.model.norm.weight.fill_(1e3)
    for to in ("hf", "mixtral"):
        with pytest.raises(InputError, match="--dtype float16"):
            export_model(
                copy.deepcopy(model), tokenizer, ExportSettings(to, dtype="float16"), tmp_path / "out"
            )
    with torch.no_grad():
        model.model.norm.weight.fill_(3e38)
    with pytest.raises(InputError, match="the model's logits are not finite: the model diverged"):
        export_model(model, tokenizer, ExportSettings("mixtral"), tmp_path / "out")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("design", "settings", "named"),
    [
        ("lory", ExportSettings("llama"), "--prompt"),
        ("lory", ExportSettings("llama", prompt=" "), "prompt is empty"),
        ("lory", ExportSettings("llama", prompt="w1 " * 33), "33 tokens"),
        ("mixtral", ExportSettings("gguf", prompt="w1"), "every token chooses"),
        ("lory", ExportSettings("llama", prompt="w1", label="x"), "--label x"),
        ("dense", ExportSettings("llama", prompt="w1"), "--prompt"),
        ("label", ExportSettings("llama"), "label"),
        ("lory", ExportSettings("gguf", prompt="w1"), "tokenizer"),
    ],
    ids=str,
)
def test_what_cannot_be_exported_is_refused_and_leaves_nothing(
    design: str, settings: ExportSettings, named: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    model = model_of(design, **({"num_experts": 1} if design == "dense" else {}))
    with pytest.raises(InputError, match=named):
        export_model(model, tokenizer, settings, tmp_path / "out")
    assert not any(tmp_path.iterdir())


def test_experts_that_transformers_cannot_multiply_are_refused(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    """Their rows are no multiple of 16 bytes: those of width 20 are in float32 only."""
    model = model_of("mixtral", intermediate_size=20)  # cast by the first export
    with pytest.raises(InputError, match="down_proj"):
        export_model(model, tokenizer, ExportSettings("mixtral", "bfloat16"), tmp_path / "out")
    assert not any(tmp_path.iterdir())
    model = model_of("mixtral", intermediate_size=20)
    export_model(model, tokenizer, ExportSettings("mixtral"), tmp_path / "out")


def test_what_a_gguf_file_needs_is_missed_before_the_work(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "convert", lambda *_: pytest.fail("converted"))
    model, settings = model_of("mixtral"), ExportSettings("gguf")
    monkeypatch.setitem(sys.modules, "gguf", types.ModuleType("gguf"))
    with pytest.raises(InputError, match="its tokenizer is not a byte-level BPE"):
        export_model(model, tokenizer, settings, tmp_path / "out")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(InputError, match="--to gguf needs the gguf package"):
        export_model(model, byte_tokenizer(), settings, tmp_path / "out")


def test_an_export_that_computes_something_else_is_not_written(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = model_of("lory")
    monkeypatch.setattr(export, "convert", lambda *_: other)
    with pytest.raises(RuntimeError, match="the exported model's logits differ"):
        export_model(model_of("mixtral"), tokenizer, ExportSettings("mixtral"), tmp_path / "out")
    assert not any(tmp_path.iterdir())


def test_nothing_that_is_there_is_overwritten(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    model, file = model_of("lory"), tmp_path / "file"
    (tmp_path / "empty").mkdir()
    folder = export_model(model, tokenizer, ExportSettings("hf"), tmp_path / "empty")
    file.write_text("mine")
    for there in (folder, file):
        with pytest.raises(InputError, match=str(there)):
            export_model(model, tokenizer, ExportSettings("hf"), there)
    assert file.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "file"}


def test_the_same_export_is_left_and_another_refused(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    settings = ExportSettings("llama", prompt="w1 w2")
    out = export_run(folder, settings, tmp_path / "out")
    before = (out / "model.safetensors").stat().st_mtime_ns
    assert export_run(folder, settings, tmp_path / "out") == out
    assert (out / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(InputError, match="different: prompt"):
        export_run(folder, ExportSettings("llama", prompt="w1"), tmp_path / "out")
    (folder / "model" / "README.md").touch()
    assert export_run(folder, settings, out) == out
    for name in ("model.safetensors", "config.json", "generation_config.json", "tokenizer.json"):
        path, times = folder / "model" / name, (folder / "model" / name).stat()
        path.touch()
        with pytest.raises(InputError, match=r"\(different: source\)"):
            export_run(folder, settings, out)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert export_run(folder, settings, out) == out


def test_a_damaged_record_of_an_export_is_refused(finished: Path, tmp_path: Path) -> None:
    for damaged in ("{bad", "[]"):
        (tmp_path / "export.json").write_text(damaged)
        with pytest.raises(InputError, match=r"export\.json"):
            export_run(finished, ExportSettings("hf"), tmp_path)


def test_a_card_has_the_runs_numbers(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    measured = {"step": 2, "perplexity": {"sums": 12.345}, "mean_perplexity": 12.345}
    (folder / "evaluation.jsonl").write_text(json.dumps(measured) + "\n")
    written = (folder / "model" / "README.md").read_text()
    assert "\n- **steps**: 2\n- **training tokens**: 256\n" in written
    out = export_run(folder, ExportSettings("llama", prompt="w1"), tmp_path / "out")
    card = (out / "README.md").read_text()
    assert "- **held-out perplexity**: sums 12.35\n" in card
    assert "trust_remote_code" not in card
