"""From a recipe's name to a run: overrides, corpora, resuming; whatever is wrong is told."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loriini.data.documents import Document
from loriini.data.prepare import Corpus, PrepareSettings, prepare_documents
from loriini.errors import InputError
from loriini.recipes import RECIPES
from loriini.train import command
from loriini.train.command import override, read_corpora, resume, train_recipe
from loriini.train.run import Run
from runs import after_step, metrics, signal_self, tiny_run

RUN = tiny_run()
SMALL = ["--steps", "4", "--batch_size", "2", "--length", "32", "--routing.segment_length", "8"]


def make_corpus(folder: Path, tokenizer: str = "bpe:300", length: int = 64) -> Corpus:
    documents = [Document(f"d{i}", f"{i} times {i} is {i * i}, they say. " * 4, "sums") for i in range(40)]
    settings = PrepareSettings(tokenizer=tokenizer, length=length, order="random")
    return prepare_documents(folder, lambda skipped: documents, {"sums": "1"}, settings)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_corpus(tmp_path_factory.mktemp("corpora") / "sums").folder


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], RUN),
        (["--steps", "7"], replace(RUN, steps=7)),
        (["--steps=7"], replace(RUN, steps=7)),
        (["--batch-size", "7", "--seed", "1"], replace(RUN, batch_size=7, seed=1)),
        (["--name", "a=b"], replace(RUN, name="a=b")),
        (["--precision", "bf16"], replace(RUN, precision="bf16")),
        (["--model.num_experts", "8"], replace(RUN, model=replace(RUN.model, num_experts=8))),
        (
            ["--model.tie_word_embeddings", "true"],
            replace(RUN, model=replace(RUN.model, tie_word_embeddings=True)),
        ),
        (["--routing.norm", "1"], replace(RUN, routing=replace(RUN.routing, norm=1))),
        (["--routing.norm", "inf"], replace(RUN, routing=replace(RUN.routing, norm="inf"))),
        (["--optimizer.betas", "0.8,0.9"], replace(RUN, optimizer=replace(RUN.optimizer, betas=(0.8, 0.9)))),
        (["--optimizer.eps", "1e-6"], replace(RUN, optimizer=replace(RUN.optimizer, eps=1e-6))),
        (["--steps", "1", "--steps", "2"], replace(RUN, steps=2)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_overrides_set_what_they_name(arguments: list[str], expected: Run) -> None:
    assert override(RUN, arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stepps", "7"], r"--stepps 7: there is no 'stepps' here; there are: name, .*steps"),
        (["--model.experts", "7"], r"there is no 'experts' here; there are: hidden_size, "),
        (["--steps.more", "7"], "'steps' has no parts"),
        (["--model", "7"], "--model 7: it has parts; set one of them"),
        (["--steps", "many"], "--steps many: invalid literal"),
        (["--optimizer.eps", "small"], "could not convert"),
        (["--precision", "fp8"], "--precision fp8: it is one of: auto, bf16, fp32"),
        (["--model.tie_word_embeddings", "yes"], "it is one of: true, false"),
        (["--optimizer.betas", "0.9"], "it takes 2 values with commas between them"),
        (["--routing.top_k", "0"], "top_k is 0; it must be at least 1"),
        (["--steps"], "--steps has no value; overrides come in pairs"),
        (["steps", "7"], "unexpected argument 'steps'; overrides look like --model.num_experts 8"),
    ],
)
def test_wrong_overrides_are_named(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        override(RUN, arguments)


def test_a_run_survives_its_way_through_json() -> None:
    for make in RECIPES.values():
        run = replace(make(), corpus=(Path("here"), Path("there")))
        assert Run.from_dict(json.loads(json.dumps(run.to_dict()))) == run


def test_an_unknown_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no recipe is named 'tiny'; there are: tiny-dense, "):
        train_recipe("tiny", tmp_path / "run", [], [])
    assert not (tmp_path / "run").exists()


def test_large_recipes_need_a_corpus(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"0\.3b-dense needs a corpus: .*`loriini prepare`"):
        train_recipe("0.3b-dense", tmp_path / "run", [], [])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--model.num_attention_heads", "3"], "no multiple of model.num_attention_heads 3"),
        (["--model.num_experts", "0"], "model.num_experts is 0; it must be at least 1"),
        (["--routing.selection", "top_k", "--routing.top_k", "9"], "top_k is 9 but num_experts is 4"),
        (
            ["--routing.selection", "expert_choice", "--warmup.dense_share", "0.5"],
            "set warmup.dense_share to 0",
        ),
        (["--routing.scorer", "label"], "needs a label for every sequence"),
        (["--micro_batch_size", "-1"], "micro_batch_size is -1; it must be at least 0"),
    ],
)
def test_overrides_that_do_not_fit_each_other_are_refused(
    overrides: list[str], message: str, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        train_recipe("tiny-lory", tmp_path / "run", [corpus], [*SMALL, *overrides])
    assert not (tmp_path / "run").exists()


def test_a_recipe_trains_on_a_corpus_and_resumes_from_its_folder_alone(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_recipe("tiny-lory", tmp_path / "whole", [corpus], SMALL)
    with monkeypatch.context() as patch:
        after_step(patch, 2, signal_self)
        with pytest.raises(KeyboardInterrupt):
            train_recipe("tiny-lory", tmp_path / "run", [corpus], SMALL)
    monkeypatch.chdir(tmp_path)
    assert resume(Path("run")) == Path("run") / "model"
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    weights = [(tmp_path / run / "model" / "model.safetensors").read_bytes() for run in ("run", "whole")]
    assert weights[0] == weights[1]


def test_nothing_is_resumed_where_there_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no run to resume here \(no run\.json\); start one with"):
        resume(tmp_path)


def test_small_recipes_make_their_corpus_beside_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [Document(f"d{i}", f"def f{i}(x):\n    return x + {i}\n" * 12, "python") for i in range(60)]
    monkeypatch.setattr(command, "standard_library", lambda: documents)
    train_recipe("tiny-dense", tmp_path / "runs" / "a", [], ["--steps", "1", "--length", "32"])
    made = tmp_path / "runs" / "tiny-corpus-32"
    assert (made / "manifest.json").exists()
    train_recipe("tiny-dense", tmp_path / "runs" / "b", [], ["--steps", "1", "--length", "32"])
    settings = json.loads((tmp_path / "runs" / "b" / "run.json").read_text())
    assert settings["corpus"] == [str(made)]


def test_corpora_are_read_as_one(corpus: Path, tmp_path: Path) -> None:
    one, two = make_corpus(corpus), make_corpus(tmp_path / "other", str(corpus / "tokenizer"))
    joined = read_corpora([one.folder, two.folder])
    assert len(joined.instances) == len(one.instances) + len(two.instances)
    assert joined.vocab_size == one.instances.vocab_size
    assert joined.digest != read_corpora([one.folder]).digest


def test_corpora_of_different_tokenizers_or_lengths_are_refused(corpus: Path, tmp_path: Path) -> None:
    tokenizer = make_corpus(tmp_path / "tokenizer", "bpe:290").folder
    length = make_corpus(tmp_path / "length", str(corpus / "tokenizer"), length=32).folder
    with pytest.raises(InputError, match="made with different tokenizers; prepare them with the same"):
        read_corpora([corpus, tokenizer])
    with pytest.raises(InputError, match=r"different lengths \(.*sums: 64, .*length: 32\)"):
        read_corpora([corpus, length])
    with pytest.raises(InputError, match="no finished corpus here"):
        read_corpora([tmp_path])
