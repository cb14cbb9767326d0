"""Runs that start from a model: its architecture and weights are taken, what does not fit is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, PreTrainedModel

from loriini.common.errors import InputError
from loriini.model.weights.loading import load_model
from loriini.model.weights.run_record import training_of
from loriini.train.corpora import read_corpora
from loriini.train.initial import InitialModel
from loriini.train.launch import dry_run, resolve_recipe, resume, train_recipe
from loriini.train.records.metrics import METRICS, read_records
from model.families import TINY_FAMILIES
from runs import after_step, metrics, prepared, signal_self, tiny_run, trained, write_tokenizer
from tiny import tiny_model
from together import in_one_group, job

SMALL = ["--steps", "2", "--batch_size", "2", "--length", "16", "--routing.segment_length", "8"]
SMALL += ["--precision", "fp32", "--checkpoint.every", "1", "--optimizer.warmup", "0"]
SIZE = 300


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("corpora") / "sums", f"bpe:{SIZE}", length=16).folder


@pytest.fixture(scope="module")
def save(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Saves a tiny model of a family with the corpus's tokenizer, once."""
    folders: dict[str, Path] = {}

    def saved(family: str, **changes: Any) -> Path:
        key = f"{family} {changes}"
        if key not in folders:
            torch.manual_seed(0)
            folders[key] = tmp_path_factory.mktemp(family)
            changes = {"vocab_size": SIZE, "initializer_range": 0.05, **changes}
            TINY_FAMILIES[family](**changes).save_pretrained(folders[key])
            AutoTokenizer.from_pretrained(corpus / "tokenizer").save_pretrained(folders[key])
        return folders[key]

    return saved


@pytest.fixture(scope="module")
def lory(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a mixture, copied from a dense model before its second step."""
    out = tmp_path_factory.mktemp("lory") / "run"
    warmed = ["--steps", "3", "--warmup.dense_share", "0.4", "--checkpoint.keep", "3"]
    train_recipe("tiny-lory", out, [corpus], [*SMALL, *warmed])
    return out


def first_loss(out: Path) -> float:
    return float(next(iter(read_records(out / METRICS)))["loss"])


def loss_of(model: PreTrainedModel, corpus: Path, batch: int = 2) -> float:
    """The loss of a model on the first batch of a run with seed 0."""
    from loriini.data.batches.loader import BatchLoader

    ids = BatchLoader(read_corpora([corpus]).instances, batch, 0).at(0)[0]
    ids_BL = torch.from_numpy(ids)
    return model(ids_BL[:, :-1], shift_labels=ids_BL[:, 1:]).loss.item()


def recorded(out: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((out / "run.json").read_text())
    return values


def change_weights(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] += 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_a_dense_model_is_copied_into_the_designs_experts(
    family: str, corpus: Path, save: Callable[..., Path], tmp_path: Path
) -> None:
    folder = save(family, **({"resid_pdrop": 0.0} if family == "gpt2" else {}))
    model = load_model(train_recipe("tiny-lory", tmp_path / "run", [corpus], SMALL, init=str(folder)))[0]
    dense = load_model(folder)[0]
    assert first_loss(tmp_path / "run") == pytest.approx(loss_of(dense, corpus), rel=1e-5)
    assert (model.config.num_experts, model.config.routing.unit) == (4, "segment")
    for name in ("hidden_size", "num_key_value_heads", "qk_norm", "block", "rms_norm_eps"):
        assert getattr(model.config, name) == getattr(dense.config, name)
    values = recorded(tmp_path / "run")
    assert training_of(tmp_path / "run").length == 16 < model.config.max_position_embeddings
    assert values["init"] == str(folder)
    assert values["warmup"]["dense_share"] == 0


def test_a_mixture_is_taken_with_its_design_and_routers(
    corpus: Path, save: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save("olmoe")
    train_recipe(
        "tiny-lory", tmp_path / "run", [corpus], [*SMALL, "--routing.load_balance", "0"], init=str(folder)
    )
    assert "routers kept" in capsys.readouterr().err
    routing = recorded(tmp_path / "run")["routing"]
    assert (routing["unit"], routing["top_k"], routing["gates"]) == ("token", 3, "softmax_all")
    assert first_loss(tmp_path / "run") == pytest.approx(loss_of(load_model(folder)[0], corpus), rel=1e-5)


def test_a_run_starts_from_a_run_its_model_or_one_of_its_checkpoints(
    corpus: Path, lory: Path, tmp_path: Path
) -> None:
    steps = sorted((lory / "checkpoints").iterdir())
    dense = [InitialModel(str(path)).dense for path in steps]
    assert dense == [True, False, False]
    expected = loss_of(load_model(lory)[0].train(), corpus)
    for i, source in enumerate((lory, lory / "model", steps[-1])):
        out = tmp_path / str(i)
        train_recipe("tiny-lory", out, [corpus], [*SMALL, "--steps", "1"], init=str(source))
        assert first_loss(out) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("change", [shutil.rmtree, change_weights])
def test_a_run_resumes_when_the_model_that_it_started_from_is_gone_or_changed(
    change: Callable[[Path], None],
    corpus: Path,
    save: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(save("llama"), folder)
    start = ("tiny-lory", tmp_path / "run", [corpus], SMALL)
    whole = train_recipe("tiny-lory", tmp_path / "whole", [corpus], SMALL, init=str(folder))
    with monkeypatch.context() as patch:
        after_step(patch, 1, signal_self)
        with pytest.raises(KeyboardInterrupt):
            train_recipe(*start, init=str(folder))
    change(folder)
    assert train_recipe(*start, init=str(folder)) == tmp_path / "run" / "model"
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    assert resume(tmp_path / "whole") == whole
    if not folder.exists():
        with pytest.raises(InputError, match="no such folder"):
            train_recipe("tiny-lory", tmp_path / "other", [corpus], SMALL, init=str(folder))


def test_weights_that_changed_before_the_first_checkpoint_are_refused(
    corpus: Path, save: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(save("llama"), folder)
    train_recipe("tiny-lory", tmp_path / "run", [corpus], SMALL, init=str(folder))
    for done in ("model", "checkpoints"):
        shutil.rmtree(tmp_path / "run" / done)
    change_weights(folder)
    with pytest.raises(InputError, match="not the weights that the run began with"):
        resume(tmp_path / "run")
    with pytest.raises(InputError, match=r"holds another run \(different: init_digest\)"):
        train_recipe("tiny-lory", tmp_path / "run", [corpus], SMALL, init=str(folder))


@pytest.mark.parametrize(
    ("family", "overrides", "message"),
    [
        ("llama", ["--model.hidden_size", "32"], "--model.hidden_size 32: .* has 16"),
        ("mixtral", ["--model.num_experts", "4"], "--model.num_experts 4: .* has 5"),
        ("llama", ["--routing", "switch"], "a dense model's FFN .*gates that sum to 1.* such as lory"),
        ("mixtral", ["--warmup.dense_share", "0.5"], "--warmup.dense_share 0"),
        ("mixtral", ["--routing", "deepseek-v3"], "num_shared_experts is 1, .* is 0; give the same"),
        ("mixtral", ["--routing", "aoe"], "low_rank is 8, .* is None; .* another design"),
        ("gpt2", ["--length", "64"], "32 learned positions"),
        ("gpt2", ["--model.max_position_embeddings", "64"], "position_embeddings 64: .* has 32"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_design_or_override_that_contradicts_the_model_is_refused(
    family: str, overrides: list[str], message: str, corpus: Path, save: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        train_recipe("tiny-lory", tmp_path / "run", [corpus], [*SMALL, *overrides], init=str(save(family)))
    assert not (tmp_path / "run").exists()


def test_a_dry_run_estimates_the_models_architecture(save: Callable[..., Path]) -> None:
    folder = save("llama")
    found = dry_run("tiny-dense", [*SMALL, "--model.rope_theta", "5e5"], init=str(folder))
    assert found.parameters_total == load_model(folder)[0].config.parameters()[0]
    with pytest.raises(InputError, match="--vocab-size 9: this run has 300; leave it out"):
        dry_run("tiny-dense", SMALL, vocab_size=9, init=str(folder))


@pytest.mark.parametrize(
    ("vocab_size", "tokenizer"), [(SIZE - 1, False), (SIZE + 4, False), (SIZE + 4, True)]
)
def test_the_corpus_must_have_the_models_tokens(
    vocab_size: int, tokenizer: bool, corpus: Path, tmp_path: Path
) -> None:
    """With the model's tokenizer beside it, rows of the embedding beyond the tokenizer's do no harm."""
    folder = tmp_path / "llama"
    TINY_FAMILIES["llama"](vocab_size=vocab_size).save_pretrained(folder)
    start = ("tiny-dense", tmp_path / "run", [corpus], SMALL)
    if tokenizer:
        AutoTokenizer.from_pretrained(corpus / "tokenizer").save_pretrained(folder)
        model = load_model(train_recipe(*start, init=str(folder)))[0]
        assert model.config.vocab_size == vocab_size
        return
    remedy = f"embeds {vocab_size}; prepare the corpus with `loriini prepare … --tokenizer FOLDER`"
    with pytest.raises(InputError, match=f"the corpus has {SIZE} tokens.*{remedy}"):
        train_recipe(*start, init=str(folder))
    assert not (tmp_path / "run").exists()


def test_another_tokenizer_of_the_same_size_is_refused(
    corpus: Path, save: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(save("llama"), folder)
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text())
    vocabulary = values["model"]["vocab"]
    a, b = list(vocabulary)[-2:]
    vocabulary[a], vocabulary[b] = vocabulary[b], vocabulary[a]
    path.write_text(json.dumps(values))
    with pytest.raises(InputError, match=r"tokenizer is not that of .*llama; prepare the corpus with"):
        train_recipe("tiny-dense", tmp_path / "run", [corpus], SMALL, init=str(folder))


@pytest.mark.parametrize(("ends", "warned"), [(0, False), ([1, 0], False), (1, True)])
def test_a_corpus_whose_documents_end_with_another_token_is_warned_of(
    ends: int | list[int],
    warned: bool,
    corpus: Path,
    save: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(save("llama"), tmp_path / "llama")
    path = tmp_path / "llama" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": ends}))
    InitialModel(str(tmp_path / "llama")).check_vocabulary(read_corpora(corpus))
    assert ("documents end with the token" in capsys.readouterr().err) == warned


def test_a_checkpoint_says_what_its_model_is_and_its_run_has_the_tokenizer(tmp_path: Path) -> None:
    (checkpoint,) = (trained(tiny_run(steps=2), tmp_path) / "checkpoints").iterdir()
    copied = shutil.copytree(checkpoint, tmp_path / "a" / "copy" / checkpoint.name)
    of_run, alone = InitialModel(str(checkpoint)), InitialModel(str(copied))
    assert of_run.config.to_dict() == alone.config.to_dict()
    assert of_run.config.num_experts == 3
    assert of_run.tokenizer_folder == checkpoint.parents[1] / "tokenizer"
    assert alone.tokenizer_folder is None


def train_in_a_group(corpus: Path, init: Path, out: Path, more: list[str]) -> None:
    train_recipe("tiny-lory", out, [corpus], [*SMALL, *more], init=str(init))


def test_several_processes_start_from_a_model(
    corpus: Path, save: Callable[..., Path], tmp_path: Path
) -> None:
    several, alone, dense = tmp_path / "several", tmp_path / "alone", save("llama")
    job(2, in_one_group, [(train_in_a_group, corpus, dense, several, ["--parallel.experts", "2"])])
    train_recipe("tiny-lory", alone, [corpus], SMALL, init=str(dense))
    found, expected = ([m["loss"] for m in metrics(out)] for out in (several, alone))
    assert found == pytest.approx(expected, rel=1e-5)


def test_with_its_optimizer_a_run_goes_on_as_if_it_had_been_longer(corpus: Path, tmp_path: Path) -> None:
    settings = ["--optimizer.schedule", "constant", "--warmup.dense_share", "0"]
    longer = ["--steps", "4", "--init_optimizer", "true"]
    part, whole, alone, several = (tmp_path / name for name in ("part", "whole", "alone", "several"))
    train_recipe("tiny-lory", part, [corpus], [*SMALL, *settings])
    train_recipe("tiny-lory", whole, [corpus], [*SMALL, *settings, "--steps", "4"])
    train_recipe(str(part / "run.json"), alone, [], longer, init=str(part))
    weights, expected = (load_file(out / "model" / "model.safetensors") for out in (alone, whole))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert [m["step"] for m in metrics(alone)] == [3, 4]
    job(2, in_one_group, [(train_in_a_group, corpus, part, several, [*settings, *longer])])
    of_all, of_several = metrics(whole), metrics(several)
    assert [m["loss"] for m in of_several] == pytest.approx([m["loss"] for m in of_all[2:]], rel=1e-5)


@pytest.mark.parametrize(
    ("init", "overrides", "message"),
    [
        ("run", ["--steps", "3"], "--steps 3: .*step-00000003 is of step 3; give more"),
        ("run", ["--optimizer.name", "adamw"], "--optimizer.name adamw: .* the checkpoint's, muon"),
        ("run", ["--routing", "prefix"], "holds another design"),
        ("run/checkpoints/step-00000001", [], "holds another design"),  # still dense
        ("run/model", [], "has no optimizer; give --init a run or a checkpoint"),
    ],
)
def test_a_run_goes_on_only_with_the_same_model_and_optimizer_for_more_steps(
    init: str, overrides: list[str], message: str, lory: Path
) -> None:
    given = ["--steps", "9", *overrides, "--init-optimizer", "true"]
    with pytest.raises(InputError, match=message):
        resolve_recipe("tiny-lory", [*SMALL, *given], str(lory.parent / init))


def test_the_design_is_the_models_and_settings_of_training_are_the_recipes(tmp_path: Path) -> None:
    """A model that was trained with a z-loss and recomputed merges."""
    folder = tmp_path / "model"
    tiny_model("mixtral", output_z=1e-4, recompute_merge=True).save_pretrained(folder)
    write_tokenizer(folder)
    run = resolve_recipe("tiny-lory", ["--routing.load_balance", "0.02", "--length=16"], str(folder))
    assert (run.routing.selection, run.routing.load_balance, run.length) == ("top_k", 0.02, 16)
    assert (run.model.output_z, run.model.recompute_merge) == (0.0, "auto")
    run = resolve_recipe("tiny-lory", ["--length", "16", "--model.output_z", "1e-3"], str(folder))
    assert run.model.output_z == 1e-3
