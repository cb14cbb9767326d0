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


def test_a_gguf_file_prints_its_path(made: Made, tmp_path: Path, capsys: Captured) -> None:
    pytest.importorskip("gguf", reason="GGUF files are written by the extra loriini[gguf]")
    ended = call(capsys, "export", made.run, "--to", "gguf", "--prompt", "the owl", "--out", tmp_path / "out")
    assert ended == Ended(0, f"{tmp_path / 'out' / 'model.gguf'}\n", "")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"README.md", "export.json", "model.gguf"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--to", "mixtral"), "--to hf"),
        (("--to", "llama"), "--prompt"),
        (("--to", "llama", "--prompt", "the owl " * 99), "context 64"),
        (("--to", "llama", "--prompt", "a", "--prompt-file", "b"), "--prompt-file"),
        (("--to", "hf", "--prompt", "a"), "--to hf"),
        (("--to", "hf", "--step", 7), "--step 7"),
    ],
    ids=str,
)
def test_wrong_input_is_refused_in_one_line(
    options: tuple[object, ...], named: str, made: Made, tmp_path: Path, capsys: Captured
) -> None:
    assert_refused(call(capsys, "export", made.run, *options, "--out", tmp_path / "out"), named)
    assert not any(tmp_path.iterdir())


def test_help_names_every_format(capsys: Captured) -> None:
    shown = call(capsys, "export", "--help").out
    assert all(f"{name} " in " ".join(shown.split()) for name in FORMATS)
