import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from loriini.common.errors import InputError
from loriini.data.jobs.artifact import Artifact
from loriini.data.prepare.text.documents import write_documents
from loriini.data.prepare.tokenized.tokenizer import read_tokenizer, train_bpe, write_tokenizer
from loriini.data.read.document import Document
from loriini.evaluate.document_tokens import AS_IN_TRAINING

TEXTS = ["Hello world  x", "  lead", "a\n\n  b\tc", "naïve 😀 <|endoftext|> x", " x", "don't, 12 345!"]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    made = [Document(f"d{i}", TEXTS[i % 6] * (i + 1), "any") for i in range(40)]
    return write_documents(tmp_path_factory.mktemp("texts") / "documents", lambda _: made, {})


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory, documents: Artifact) -> Artifact:
    return write_tokenizer(tmp_path_factory.mktemp("bpe") / "tokenizer", "bpe:300", documents)


def test_trained_tokenizer_is_deterministic_and_loads(
    tmp_path: Path, documents: Artifact, tokenizer: Artifact
) -> None:
    again = write_tokenizer(tmp_path / "again", "bpe:300", documents)
    assert again.files == tokenizer.files
    fast = AutoTokenizer.from_pretrained(tokenizer.folder)
    assert fast.eos_token == fast.bos_token == fast.pad_token == "<|endoftext|>"
    assert 257 < tokenizer.counts["vocab_size"] <= 300
    assert all(fast.decode(fast(text).input_ids) == text for text in TEXTS)


def test_a_sample_has_documents_of_kinds_that_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [Document(f"d{i}", f"{'odd' if i % 2 else 'even'} " * 20 + str(i), "any") for i in range(60)]
    documents = write_documents(tmp_path / "documents", lambda _: made, {})
    monkeypatch.setattr(
        "loriini.data.prepare.tokenized.tokenizer.TRAINING_CHARACTERS", documents.counts["characters"] // 2
    )
    assert {"Ġodd", "Ġeven"} <= train_bpe(documents, 300).get_vocab().keys()


@pytest.mark.parametrize("starts", [["first"], ["first", "next", "held"], ["held", "first", "held"]])
def test_where_none_is_drawn_the_first_texts_are_learned_from(
    starts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long texts, of which the draw has none, or only the third, which is held out."""
    monkeypatch.setattr("loriini.data.prepare.tokenized.tokenizer.TRAINING_CHARACTERS", 600)
    monkeypatch.setattr(
        "loriini.data.prepare.tokenized.tokenizer.is_held_out", lambda text, _: text.startswith("held")
    )
    made = [Document(f"d{i}", f"{start} " * 100 + "later " * 400, "any") for i, start in enumerate(starts)]
    documents = write_documents(tmp_path / "documents", lambda _: made, {})
    learned = train_bpe(documents, 270).get_vocab().keys()
    assert "Ġfirst" in learned
    assert not {"Ġnext", "ld", "at"} & learned


def test_a_vocabulary_smaller_than_asked_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = write_documents(tmp_path / "documents", lambda _: [Document("d", "ab ab", "any")], {})
    for size, warned in ((258, False), (300, True)):
        made = len(train_bpe(documents, size))
        told = capsys.readouterr().err
        assert (f"warning: bpe:{size} has only {made} tokens" in told) == warned == (made < size)


def test_tokenizer_read_from_its_folder_or_file(
    tmp_path: Path, documents: Artifact, tokenizer: Artifact
) -> None:
    expected = read_tokenizer(tokenizer.folder)(TEXTS).input_ids
    for i, path in enumerate((tokenizer.folder, tokenizer.path("tokenizer.json"))):
        copy = write_tokenizer(tmp_path / f"copy{i}", str(path), documents)
        assert read_tokenizer(copy.folder)(TEXTS).input_ids == expected
        assert copy.counts == tokenizer.counts


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        *((f"bpe:{size}", "at least 257 and at most 1048576") for size in ("12", "x", "1048577", "9" * 23)),
        (f"bpe:{'9' * 5000}", "at most"),
        ("absent", "no such"),
        ("/dev/zero", "no tokenizer.json"),
    ],
)
def test_wrong_spec(tmp_path: Path, documents: Artifact, spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        write_tokenizer(tmp_path / "tokenizer", spec, documents)


def test_only_the_files_that_are_read_identify_a_tokenizer(
    tmp_path: Path, tokenizer: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(tokenizer.folder, source)
    made = write_tokenizer(out, str(source), None)
    assert made.inputs == {
        name: tokenizer.files[name] for name in ("tokenizer.json", "tokenizer_config.json")
    }
    (source / "model.safetensors").write_bytes(b"weights")
    source = source.rename(tmp_path / "moved")
    assert write_tokenizer(out, str(source), None) == made
    monkeypatch.chdir(source)
    config = Path("tokenizer_config.json").rename("other.json")
    made = write_tokenizer(tmp_path / "bare", "tokenizer.json", None)
    assert list(made.inputs) == ["tokenizer.json"]
    config.rename("tokenizer_config.json")
    with pytest.raises(InputError, match=r"other inputs \(tokenizer_config\.json\)"):
        write_tokenizer(tmp_path / "bare", "tokenizer.json", None)
    (source / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match=r"other inputs \(tokenizer_config\.json\)"):
        write_tokenizer(out, str(source), None)


def test_unreadable_tokenizers(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="not a readable tokenizer"):
        read_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "spm.model").write_bytes(b"nothing")
    with pytest.raises(InputError, match="not a readable tokenizer"):
        read_tokenizer(tmp_path / "spm.model")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        read_tokenizer(tmp_path / "folder")


def test_sentencepiece_extra_is_named_when_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise ImportError

    # by its name the package may give the function of that name
    module = importlib.import_module("transformers.convert_slow_tokenizer")
    monkeypatch.setattr(module, "requires_backends", absent)
    (tmp_path / "spm.model").write_bytes(b"")
    with pytest.raises(InputError, match=r"pip install 'loriini\[sentencepiece\]'"):
        read_tokenizer(tmp_path / "spm.model")


def test_tokenizer_without_eos(tmp_path: Path, tokenizer: Artifact) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.path("tokenizer.json").read_text().replace("<|endoftext|>", "<other>"))
    with pytest.raises(InputError, match="no EOS token"):
        read_tokenizer(path)


def test_special_tokens_come_from_the_configuration_beside(tmp_path: Path, tokenizer: Artifact) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.path("tokenizer.json").read_text().replace("<|endoftext|>", "<stop>"))
    config = {
        "eos_token": {"content": "<stop>"},
        "bos_token": "<absent>",
        "tokenizer_class": "LlamaTokenizer",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    fast = read_tokenizer(tmp_path)
    assert (fast.eos_token, fast.bos_token) == ("<stop>", "<stop>")
    assert fast(TEXTS[0]).input_ids == read_tokenizer(tokenizer.folder)(TEXTS[0]).input_ids


def test_nothing_is_added_to_a_text_as_in_training(tmp_path: Path, tokenizer: Artifact) -> None:
    """A template that puts a BOS token before a text: models are trained without one."""
    library = Tokenizer.from_file(str(tokenizer.path("tokenizer.json")))
    library.add_special_tokens(["<s>"])
    start = ("<s>", library.token_to_id("<s>"))
    library.post_processor = TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[start])
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    fast = read_tokenizer(tmp_path)
    fast.save_pretrained(tmp_path / "saved")
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert fast(TEXTS[0]).input_ids == read_tokenizer(tokenizer.folder)(TEXTS[0]).input_ids
    assert again(TEXTS[0]).input_ids == fast(TEXTS[0]).input_ids
    assert again.bos_token == "<|endoftext|>"


def train_sentencepiece(folder: Path, texts: list[str] = TEXTS, **settings: Any) -> Path:
    """A SentencePiece model of texts; the test is skipped without the package."""
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 20),
        model_prefix=str(folder / "model"),
        vocab_size=330,
        hard_vocab_limit=False,
        minloglevel=2,
        **settings,
    )
    return folder / "model.model"


@pytest.mark.parametrize(
    ("model_type", "symbols"),
    [
        ("bpe", []),
        ("unigram", []),
        ("bpe", ["<sep>", "<se", "▁▁", "▁▁▁▁"]),
        ("unigram", ["<sep>", "<se"]),
    ],
)
def test_sentencepiece_gives_the_models_own_ids(tmp_path: Path, model_type: str, symbols: list[str]) -> None:
    path = train_sentencepiece(
        tmp_path,
        model_type=model_type,
        byte_fallback=True,
        normalization_rule_name="nmt_nfkc",
        user_defined_symbols=symbols,
        remove_extra_whitespaces=not symbols,
    )
    model = importlib.import_module("sentencepiece").SentencePieceProcessor(model_file=str(path))
    fast = read_tokenizer(write_tokenizer(tmp_path / "tokenizer", str(path), None).folder)
    texts = [*TEXTS, "unseen words: ß\u200b", "Hello<sep>world", "<sep><sep> a", "a <se x", "a    b  c"]
    texts += ["<s>old</s> x", "</s>", "a <unk> b<0x41>c", "<sep></s><sep>"]  # text, not tokens of the model
    assert fast(texts, **AS_IN_TRAINING).input_ids == model.encode(texts)
    assert (fast.eos_token_id, fast.bos_token_id, len(fast)) == (2, 2, len(model))
    assert fast.decode(model.encode("Hello world x")) == "Hello world x"


def test_sentencepiece_has_no_merges_for_the_spellings_of_control_tokens(tmp_path: Path) -> None:
    """Where "s>" is a piece, "</" and "s>" would make "</s>", EOS."""
    markup = ["<items>some prices</items> </prices> <names>a</names>", "<s>old</s> </s> <unk>"]
    path = train_sentencepiece(tmp_path, markup, model_type="bpe", split_by_unicode_script=False)
    model = importlib.import_module("sentencepiece").SentencePieceProcessor(model_file=str(path))
    pieces = [model.id_to_piece(i) for i in range(len(model))]
    assert "s>" in pieces
    texts = [*markup, "</s>", "x</s>s>", "<s>s</s>", "names</s><s>"]
    assert read_tokenizer(path)(texts, **AS_IN_TRAINING).input_ids == model.encode(texts)


def test_special_tokens_that_only_the_configuration_names_are_text_too(tmp_path: Path) -> None:
    words = {"a": 0, "<stop>": 1, "<none>": 2}
    library = Tokenizer(models.WordLevel(words, unk_token="<none>"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<stop>", "unk_token": "<none>"}')
    read = read_tokenizer(tmp_path)
    again = read_tokenizer(write_tokenizer(tmp_path / "written", str(tmp_path), None).folder)
    for tokenizer in (read, again):
        assert tokenizer("a <stop> a", **AS_IN_TRAINING).input_ids == [0, 2, 2, 0]
        assert tokenizer("a <stop>", add_special_tokens=False).input_ids == [0, 1]


@pytest.mark.parametrize("rule", ["identity", "nfkc"])
def test_sentencepiece_drops_outer_spaces_alone(tmp_path: Path, rule: str) -> None:
    path = train_sentencepiece(
        tmp_path, model_type="unigram", byte_fallback=True, normalization_rule_name=rule
    )
    model = importlib.import_module("sentencepiece").SentencePieceProcessor(model_file=str(path))
    texts = ["plain\n", "\n\tlead  x ", "  a \n  b  ", "\t", " ", "\na \nb\n "]
    assert read_tokenizer(path)(texts, **AS_IN_TRAINING).input_ids == model.encode(texts)


def test_words_that_end_with_their_space_are_refused(tmp_path: Path) -> None:
    path = train_sentencepiece(tmp_path, treat_whitespace_as_suffix=True)
    with pytest.raises(InputError, match=r"model\.model: its words end with their space"):
        read_tokenizer(path)


def test_gpt2_folder(tmp_path: Path, tokenizer: Artifact) -> None:
    trained = read_tokenizer(tokenizer.folder)
    vocabulary, merges = map(Path, trained.backend_tokenizer.model.save(str(tmp_path)))
    vocabulary.rename(tmp_path / "encoder.json")
    merges.rename(tmp_path / "vocab.bpe")
    fast = read_tokenizer(write_tokenizer(tmp_path / "tokenizer", str(tmp_path), None).folder)
    assert fast(TEXTS).input_ids == trained(TEXTS).input_ids
    assert fast.eos_token_id == trained.eos_token_id
