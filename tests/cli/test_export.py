"""The command that exports a model."""

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from cli.calls import Ended, Made, assert_refused, call
from loriini.export.formats import FORMATS

Captured = pytest.CaptureFixture[str]


def test_a_llama_and_a_hugging_face_folder(made: Made, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "prompt.txt").write_text("the owl is")
    for name, more in (
        ("text", ("--prompt", "the owl is")),
        ("file", ("--prompt-file", tmp_path / "prompt.txt")),
    ):
        ended = call(capsys, "export", made.run, "--to", "llama", *more, "--out", tmp_path / name)
        assert ended == Ended(0, f"{tmp_path / name}\n", "")
        LlamaForCausalLM.from_pretrained(tmp_path / name)
    written = call(capsys, "generate", tmp_path / "text", "--prompt", "the owl")
    assert (written.code, written.out.startswith("the owl")) == (0, True)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("text", "file")]
    assert weights[0] == weights[1]
    assert call(capsys, "export", made.run, "--to", "hf", "--out", tmp_path / "hf").code == 0
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "hf").config.num_experts == 4


def test_a_narrowed_mixture(made: Made, tmp_path: Path, capsys: Captured) -> None:
    narrowed = ("--to", "hf", "--top-k", 2, "--combination", "outputs", "--dtype", "bfloat16")
    assert call(capsys, "export", made.run, *narrowed, "--out", tmp_path / "top2").code == 0
    config = AutoModelForCausalLM.from_pretrained(tmp_path / "top2").config
    assert (config.routing.top_k, config.routing.combination) == (2, "outputs")
    assert str(config.dtype) == "torch.bfloat16"
    prompt = ("--prompt", "the owl is")
    ended = call(capsys, "export", tmp_path / "top2", "--to", "llama", *prompt, "--out", tmp_path / "llama")
    assert ended.code == 0
    assert LlamaForCausalLM.from_pretrained(tmp_path / "llama").config.intermediate_size == 2 * 176


def test_a_gguf_file_prints_its_path(made: Made, tmp_path: Path, capsys: Captured) -> None:
    pytest.importorskip("gguf", reason="GGUF files are written by the extra loriini[gguf]")
    ended = call(capsys, "export", made.run, "--to", "gguf", "--prompt", "the owl", "--out", tmp_path / "out")
    assert ended == Ended(0, f"{tmp_path / 'out' / 'model.gguf'}\n", "")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"README.md", "export.json", "model.gguf"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--to", "mixtral"), "it routes by segment, not by token; use --to hf or llama or gguf"),
        (("--to", "llama"), "give --prompt TEXT or --prompt-file F"),
        (("--to", "llama", "--prompt", ""), "give --prompt TEXT or --prompt-file F"),
        (("--to", "llama", "--prompt", "the owl " * 99), "the model's context 64; shorten it"),
        (("--to", "llama", "--prompt", "a", "--prompt-file", "b"), "give --prompt or --prompt-file"),
        (("--to", "llama", "--prompt-file", "absent.txt"), "absent.txt: not a readable text file"),
        (("--to", "hf", "--prompt", "a"), "are for formats without a router, not --to hf"),
        (("--to", "hf", "--step", 7), "--step 7: no checkpoint of this step"),
        (("--to", "hf", "--top-k", 9), "it must be at most num_experts, which is 4"),
    ],
    ids=str,
)
def test_wrong_input_is_refused_in_one_line(
    options: tuple[object, ...], reason: str, made: Made, tmp_path: Path, capsys: Captured
) -> None:
    assert_refused(call(capsys, "export", made.run, *options, "--out", tmp_path / "out"), reason)
    assert not any(tmp_path.iterdir())


def test_a_folder_without_a_model_is_refused(tmp_path: Path, capsys: Captured) -> None:
    ended = call(capsys, "export", tmp_path, "--to", "hf", "--out", tmp_path / "out")
    assert_refused(ended, f"{tmp_path}: no trained model here")


def test_help_names_every_format(capsys: Captured) -> None:
    shown = call(capsys, "export", "--help").out
    assert all(f"{name} " in " ".join(shown.split()) for name in FORMATS)
