"""Ids of the Hugging Face Hub are taken where folders are; nothing here goes to the network."""

from pathlib import Path

import pytest
from huggingface_hub.utils import filter_repo_objects

from cli.calls import Captured, assert_refused, call
from loriini.common.hub import FILES, OTHER_FORMATS, is_hub_id, local_folder
from loriini.data.prepare.tokenized.tokenizer import check_tokenizer
from loriini.model.weights.loading import load_model
from loriini.train.initial import InitialModel
from model.families import TINY_FAMILIES
from runs import EOS, VOCABULARY, write_tokenizer


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The snapshot of `org/tiny-llama` in an offline cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    stored, commit = tmp_path / "models--org--tiny-llama", "0" * 40
    snapshot = stored / "snapshots" / commit
    TINY_FAMILIES["llama"](vocab_size=VOCABULARY, eos_token_id=EOS).save_pretrained(snapshot)
    write_tokenizer(snapshot)
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text(commit)
    return snapshot


def test_an_id_is_its_snapshot(cached: Path) -> None:
    assert local_folder("org/tiny-llama") == cached
    assert local_folder(f"org/tiny-llama@{cached.name}") == cached
    assert load_model(Path("org/tiny-llama"))[0].config.num_experts == 1
    check_tokenizer("org/tiny-llama")
    initial = InitialModel("org/tiny-llama")
    initial.load()
    assert initial.tokenizer_folder == cached


def test_what_has_the_form_of_an_id() -> None:
    assert is_hub_id("org/name")
    assert is_hub_id("org/name.v1@main")
    for path in ("./name", "/org/name", "org/name/model"):
        assert not is_hub_id(path)
        assert local_folder(path) == Path(path)


def test_weights_are_downloaded_in_one_format() -> None:
    files = ["model.safetensors", "consolidated.safetensors", "original/model.safetensors"]
    assert [*filter_repo_objects(files, allow_patterns=FILES, ignore_patterns=OTHER_FORMATS)] == files[:1]


def test_every_command_takes_ids(cached: Path, capsys: Captured) -> None:
    Path("text.txt").write_text("an owl " * 50)
    for command in (
        "evaluate org/other --documents text.txt",
        "train tiny-lory --out run --init org/other",
        "prepare c --documents text.txt --out o --tokenizer org/other",
    ):
        assert_refused(call(capsys, *command.split()), "org/other: no such folder here", "go online")


def test_a_report_on_a_model_of_the_hub_needs_a_folder(cached: Path, capsys: Captured) -> None:
    for command, option in (("analyze --documents text.txt", "--out DIR"), ("lens --prompt x", "--out FILE")):
        name, *rest = command.split()
        ended = call(capsys, name, "org/tiny-llama", *rest)
        assert_refused(ended, f"no such folder here; for a model of the Hub, give {option} for the page")
    assert not Path("org").exists()
