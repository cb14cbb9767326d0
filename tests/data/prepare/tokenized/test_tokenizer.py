import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from data.prepare.arrays import documents_stage
from data.prepare.tokenized.conftest import TEXTS
from loriini.common.errors import InputError
from loriini.data.jobs.artifact import Artifact
from loriini.data.prepare.tokenized.cached_tokenizer import CachedTokenizer
from loriini.data.prepare.tokenized.tokenizer import (
    check_tokenizer,
    read_tokenizer,
    same_vocabulary,
    train_bpe,
    write_tokenizer,
)
from loriini.model.weights.loading import tokenizer_in


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
    made = (f"{'odd' if i % 2 else 'even'} " * 20 + str(i) for i in range(60))
    documents = documents_stage(tmp_path / "documents", made)
    monkeypatch.setattr(
        "loriini.data.prepare.tokenized.tokenizer.TRAINING_CHARACTERS", documents.counts["characters"] // 2
    )
    assert {"Ġodd", "Ġeven"} <= train_bpe(documents, 300).get_vocab().keys()


@pytest.mark.parametrize("starts", [["first"], ["first", "next", "held"], ["held", "first", "held"]])
def test_where_none_is_drawn_all_texts_are_learned_from(
    starts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long texts, of which the draw has none, or only the third, which is held out."""
    monkeypatch.setattr("loriini.data.prepare.tokenized.tokenizer.TRAINING_CHARACTERS", 600)
    monkeypatch.setattr(
        "loriini.data.prepare.tokenized.tokenizer.is_held_out", lambda text, _: text.startswith("held")
    )
    made = (f"{start} " * 100 + "later " * 400 for start in starts)
    documents = documents_stage(tmp_path / "documents", made)
    learned = train_bpe(documents, 270).get_vocab().keys()
    assert {"first", "Ġfirst"} & learned
    assert not {"ld", "Ġheld"} & learned


def test_a_vocabulary_smaller_than_asked_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = documents_stage(tmp_path / "documents", ["ab ab"])
    for size, warned in ((258, False), (300, True)):
        made = len(train_bpe(documents, size))
        told = capsys.readouterr().err
        assert (f"warning: bpe:{size} has only {made} tokens" in told) == warned == (made < size)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        *((f"bpe:{size}", "at least 257 and at most 1048576") for size in ("12", "x", "1048577", "9" * 23)),
        (f"bpe:{'9' * 5000}", "at most"),
        ("absent", "no such"),
        ("/dev/zero", "no tokenizer in this folder"),
    ],
)
def test_wrong_spec(tmp_path: Path, documents: Artifact, spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        write_tokenizer(tmp_path / "tokenizer", spec, documents)


def test_its_file_and_its_eos_token_identify_a_tokenizer(tmp_path: Path, tokenizer: Artifact) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(tokenizer.folder, source)
    made = write_tokenizer(out, str(source), None)
    assert made.inputs == {"tokenizer.json": tokenizer.files["tokenizer.json"], "eos_token": "<|endoftext|>"}
    (source / "model.safetensors").write_bytes(b"weights")
    source = source.rename(tmp_path / "moved")
    assert write_tokenizer(out, str(source), None) == made
    assert write_tokenizer(out, str(source / "tokenizer.json"), None) == made
    library = Tokenizer.from_file(str(source / "tokenizer.json"))
    library.add_tokens(["another"])
    library.save(str(source / "tokenizer.json"))
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        write_tokenizer(out, str(source), None)
    assert not same_vocabulary(source, tokenizer.folder)
    assert same_vocabulary(out, tokenizer.folder)


def test_unreadable_tokenizers(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "a.model"):
        for content in (b"{}", b"[]", b"", b"\xff" * 99):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(InputError, match=re.escape(name)):
                read_tokenizer(tmp_path / name)
    Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match="EOS"):
        read_tokenizer(tmp_path / "tokenizer.json")


WORDS = {"</s>": 0, "a": 1, "<unk>": 2}


@pytest.mark.parametrize(
    ("model", "verdict"),
    [
        (models.WordLevel(WORDS, unk_token="<unk>"), "fine"),
        (models.WordLevel(WORDS, unk_token="[UNK]"), "fails"),
        (models.Unigram([(word, 0.0) for word in WORDS], None), "fails"),
        (models.BPE({**WORDS, **{chr(i): i + 3 for i in range(97)}}, []), "drops"),
    ],
)
def test_a_tokenizer_that_cannot_spell_all_text(
    model: models.Model, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    spec = str(tmp_path / "tokenizer.json")
    if verdict == "fails":
        with pytest.raises(InputError, match=spec):
            check_tokenizer(spec)
    else:
        check_tokenizer(spec)
    assert (spec in capsys.readouterr().err) == (verdict == "drops")


def test_dropout_of_a_bpe_is_off_wherever_it_is_read(
    tmp_path: Path, tokenizer: Artifact, capsys: pytest.CaptureFixture[str]
) -> None:
    library = Tokenizer.from_file(str(tokenizer.path("tokenizer.json")))
    library.model.dropout = 0.5
    library.save(str(tmp_path / "tokenizer.json"))
    check_tokenizer(str(tmp_path))
    written = write_tokenizer(tmp_path / "written", str(tmp_path), None)
    assert capsys.readouterr().err.count("tokenizer's dropout") == 1
    PreTrainedTokenizerFast(tokenizer_object=library, eos_token="<|endoftext|>").save_pretrained(tmp_path)
    for fast in (read_tokenizer(tmp_path), tokenizer_in(tmp_path), tokenizer_in(written.folder)):
        assert fast(TEXTS * 9).input_ids == read_tokenizer(tokenizer.folder)(TEXTS * 9).input_ids


CLASS = {"tokenizer_class": "Qwen2Tokenizer"}
DECODER = {"added_tokens_decoder": {"2": {"content": "<|im_end|>", "special": True}}}


@pytest.mark.parametrize(
    ("files", "eos"),
    [
        ({"special_tokens_map": {"eos_token": "<|im_end|>"}, "tokenizer_config": CLASS}, "<|im_end|>"),
        ({"special_tokens_map": {"eos_token": {"content": "<|im_end|>"}}}, "<|im_end|>"),
        ({"special_tokens_map": {"eos_token": "<|im_end|>"}, "tokenizer_config": DECODER}, "<|im_end|>"),
        ({"tokenizer_config": CLASS, "config": {"eos_token_id": 2}}, "<|im_end|>"),
        ({"generation_config": {"eos_token_id": [2]}}, "<|im_end|>"),
        ({"tokenizer_config": {"eos_token": "</s>"}, "config": {"eos_token_id": [2, 1]}}, "</s>"),
        ({"config": {"eos_token_id": 2}, "generation_config": {"eos_token_id": [0, 2]}}, "<|im_end|>"),
        ({"tokenizer_config": {**CLASS, "eos_token": None}}, "<|endoftext|>"),
        ({}, "<|endoftext|>"),
        ({"tokenizer_config": {"eos_token": "<absent>"}}, "tokenizer_config.json <absent> (id None)"),
        (
            {"tokenizer_config": {"eos_token": "</s>"}, "config": {"eos_token_id": 2}},
            "tokenizer_config.json </s> (id 1), config.json <|im_end|> (id 2)",
        ),
        ({"generation_config": {"eos_token_id": [0, 2]}}, "<|endoftext|> (id 0) or <|im_end|> (id 2)"),
        ({"config": {"eos_token_id": 99}}, "config.json id 99"),
    ],
)
def test_the_end_of_a_document_is_what_all_files_say(files: dict[str, Any], eos: str, tmp_path: Path) -> None:
    words = {"<|endoftext|>": 0, "</s>": 1, "<|im_end|>": 2, "a": 3}
    Tokenizer(models.WordLevel(words, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    for name, values in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"model_type": "qwen2", **values}))
    if eos in words:
        assert read_tokenizer(tmp_path).eos_token == eos
    else:
        with pytest.raises(InputError, match=f"{re.escape(eos)}.*; give --eos TOKEN"):
            read_tokenizer(tmp_path)
    assert read_tokenizer(tmp_path, "</s>").eos_token_id == 1
    with pytest.raises(InputError, match=r"--eos <other> \(id None\)"):
        read_tokenizer(tmp_path, "<other>")
    assert same_vocabulary(tmp_path, tmp_path / "tokenizer.json")


def test_nothing_is_added_to_a_text_as_in_training(tmp_path: Path, tokenizer: Artifact) -> None:
    """A template that puts a BOS token before a text: models are trained without one."""
    library = Tokenizer.from_file(str(tokenizer.path("tokenizer.json")))
    library.add_special_tokens(["<s>"])
    start = ("<s>", library.token_to_id("<s>"))
    library.post_processor = TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[start])
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        '{"bos_token": "<s>", "tokenizer_class": "LlamaTokenizer"}'
    )
    fast = read_tokenizer(tmp_path)
    fast.save_pretrained(tmp_path / "saved")
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert fast(TEXTS[0]).input_ids == read_tokenizer(tokenizer.folder)(TEXTS[0]).input_ids
    assert again(TEXTS[0]).input_ids == fast(TEXTS[0]).input_ids
    assert again.bos_token == "<|endoftext|>"


def train_sentencepiece(folder: Path, **settings: Any) -> Path:
    """A SentencePiece model of TEXTS; the test is skipped without the package."""
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 20),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=330,
        hard_vocab_limit=False,
        byte_fallback=True,
        minloglevel=2,
        **settings,
    )
    return folder / "tokenizer.model"


@pytest.mark.parametrize(("kind", "symbols"), [("bpe", []), ("unigram", ["<sep>", "<se"])])
def test_sentencepiece_gives_the_models_own_ids(tmp_path: Path, kind: str, symbols: list[str]) -> None:
    path = train_sentencepiece(
        tmp_path, model_type=kind, user_defined_symbols=symbols, remove_extra_whitespaces=not symbols
    )
    model = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_file=str(path))
    written = write_tokenizer(tmp_path / "written", str(path.parent), None)
    encode = CachedTokenizer(written.path("tokenizer.json"), np.uint32)
    texts = [*TEXTS, "unseen words: ß\u200b", "Hello<sep>world", "a <se x", "a    b  c\n", "\t", " ", "▁x"]
    assert [np.frombuffer(ids, np.uint32).tolist() for ids in encode(texts)] == model.encode(texts)
    fast = AutoTokenizer.from_pretrained(written.folder)
    assert (fast.eos_token, fast.bos_token_id, len(fast)) == ("</s>", 2, len(model))
    assert fast.decode(model.encode("Hello world x")) == "Hello world x"


def test_tokens_added_to_a_sentencepiece_model(tmp_path: Path) -> None:
    path = train_sentencepiece(tmp_path)
    size = len(read_tokenizer(path))
    added = {"<|im_end|>": size + 1, "<|im_start|>": size}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    for given in (tmp_path, path):
        fast = read_tokenizer(given)
        assert (fast.eos_token, fast.eos_token_id, len(fast)) == ("<|im_end|>", size + 1, size + 2)
    written = write_tokenizer(tmp_path / "written", str(tmp_path), None)
    assert written.counts == {"vocab_size": size + 2, "eos_token_id": size + 1}
    assert written.inputs.keys() == {"tokenizer.model", "added_tokens.json", "eos_token"}
    text = "a <|im_end|> b"
    encode = CachedTokenizer(written.path("tokenizer.json"), np.uint32)
    model = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_file=str(path))
    assert np.frombuffer(encode([text])[0], np.uint32).tolist() == model.encode(text)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|im_end|>": size + 1}))
    with pytest.raises(InputError, match=r"added_tokens\.json: <\|im_end\|>"):
        read_tokenizer(tmp_path)


def test_a_sentencepiece_model_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its words end with their space, which the conversion does not know; or the extra is not installed."""
    path = train_sentencepiece(tmp_path, treat_whitespace_as_suffix=True)
    with pytest.raises(InputError, match=r"tokenizer\.model"):
        read_tokenizer(path)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(InputError, match=r"loriini\[sentencepiece\]"):
        read_tokenizer(path)


def test_a_folder_of_gpt2(tmp_path: Path, tokenizer: Artifact) -> None:
    trained = read_tokenizer(tokenizer.folder)
    vocabulary, merges = map(Path, trained.backend_tokenizer.model.save(str(tmp_path)))
    vocabulary.rename(tmp_path / "encoder.json")
    merges.rename(tmp_path / "vocab.bpe")
    written = write_tokenizer(tmp_path / "written", str(tmp_path), None)
    assert written.inputs.keys() == {"encoder.json", "vocab.bpe", "eos_token"}
    assert written.counts == tokenizer.counts
    assert same_vocabulary(tmp_path, tokenizer.folder)
    assert read_tokenizer(written.folder)(TEXTS).input_ids == trained(TEXTS).input_ids
