"""Corpora exported and imported have the same instances."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from tokenizers import Tokenizer, models

from loriini.common.atomic import is_unused
from loriini.common.errors import InputError
from loriini.data.convert import corpus_export, corpus_import
from loriini.data.convert.corpus_export import CorpusFormat, export_corpus
from loriini.data.convert.corpus_import import TokenFormat, import_corpus
from loriini.data.convert.megatron import read_megatron
from loriini.data.jobs.artifact import load_artifact
from loriini.data.jobs.lock import folder_lock
from loriini.data.prepare.corpus import Corpus, open_corpus
from loriini.data.prepare.prepare import prepare_documents
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.prepare.text.documents import DOMAIN_LIMIT
from loriini.data.read.document import Document
from runs import prepared, write_tokenizer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Documents of two domains, of less than an instance to several."""
    documents = [
        Document(f"d{i}", f"{i} " + "words and names " * (1 + i % 7), "birds" if i % 2 else "tools")
        for i in range(60)
    ]
    settings = PrepareSettings(tokenizer="bpe:300", length=24, order="random")
    folder = tmp_path_factory.mktemp("exchange") / "corpus"
    return prepare_documents(folder, lambda drop: documents, {"all": "1"}, settings)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that an export has several files, and each several blocks."""
    for module, name in ((corpus_export, "BLOCK_TOKENS"), (corpus_import, "BLOCK_TOKENS")):
        monkeypatch.setattr(module, name, 200)
    monkeypatch.setattr(corpus_export, "FILE_TOKENS", 200)
    monkeypatch.setattr(corpus_import, "DECODED_TOKENS", 100)


FORMS: list[tuple[CorpusFormat, TokenFormat, str]] = [
    ("megatron", "megatron", "instances"),
    ("parquet", "hf", "."),
]


@pytest.mark.parametrize(("form", "back_from", "source"), FORMS)
def test_export_and_import_give_the_same_instances(
    corpus: Corpus, tmp_path: Path, form: CorpusFormat, back_from: TokenFormat, source: str
) -> None:
    folder = export_corpus(corpus, form, tmp_path / "there")
    given = (folder / source, back_from, str(folder / "tokenizer"), corpus.instances.length)
    back = import_corpus(tmp_path / "back", *given)
    assert np.array_equal(back.instances.tokens_IL, corpus.instances.tokens_IL)
    assert back.instances.eos_token_id == corpus.instances.eos_token_id
    assert back.instances.vocab_size == corpus.instances.vocab_size
    decode = corpus_import.read_tokenizer(corpus.tokenizer).backend_tokenizer.decode
    rows = corpus.instances.tokens_IL.tolist()
    assert back.tokens.bytes.tolist() == [len(decode(row).encode()) for row in rows]
    assert import_corpus(tmp_path / "back", *given).manifest == back.manifest
    other = write_tokenizer(tmp_path / "other")
    with pytest.raises(InputError, match=r"other: has other tokens than .*there/tokenizer"):
        import_corpus(tmp_path / "again", given[0], back_from, str(other), given[3])
    assert not (tmp_path / "again").exists()


def test_each_sample_that_megatron_takes_is_one_instance(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Samples as its `build_sample_idx` cuts them: of one token more than they are apart."""
    folder = export_corpus(corpus, "megatron", tmp_path / "there")
    (given,) = re.findall(r"give Megatron --seq-length (\d+)", capsys.readouterr().err)
    tokens, length = read_megatron(folder / "instances")[0], int(given)
    samples = [tokens[start : start + length + 1] for start in range(0, len(tokens) - length, length)]
    assert len(samples) == len(corpus.instances) - 1  # the last one's last target is absent
    for sample, instance in zip(samples, corpus.instances.tokens_IL, strict=False):
        assert np.array_equal(sample[:-1], instance)


def test_parquet_names_the_documents_of_an_instance(corpus: Corpus, tmp_path: Path) -> None:
    folder = export_corpus(corpus, "parquet", tmp_path / "there")
    tables = [pyarrow.parquet.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    rows = [row for table in tables for row in table.to_pylist()]
    instances, pieces = corpus.instances, corpus.instances.pieces
    assert len(rows) == len(instances)
    assert len(tables) == -(-len(rows) // 8)
    assert any(len(set(row["piece_domains"])) > 1 for row in rows)
    names = [corpus.tokens.domain_names[i] for i in corpus.tokens.domains]
    for i, row in enumerate(rows):
        held = slice(pieces.starts_I[i], pieces.starts_I[i + 1])
        assert row["input_ids"] == instances.tokens_IL[i].tolist()
        assert row["documents"] == pieces.documents_P[held].tolist()
        assert row["piece_lengths"] == pieces.lengths_P[held].tolist()
        assert row["piece_domains"] == [names[number] for number in row["documents"]]
        assert row["domain"] == instances.label_names[instances.domains_I[i]]


def test_prepare_leaves_an_imported_corpus_as_it_is(corpus: Corpus, tmp_path: Path) -> None:
    folder = export_corpus(corpus, "parquet", tmp_path / "there")
    import_corpus(tmp_path / "back", folder, "hf", str(corpus.tokenizer), corpus.instances.length)
    with pytest.raises(InputError, match=r"back: holds an imported corpus"):
        prepared(tmp_path / "back")
    assert len(open_corpus(tmp_path / "back").instances) == len(corpus.instances)


def test_the_datasets_library_opens_the_folder(corpus: Corpus, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    folder = export_corpus(corpus, "parquet", tmp_path / "there")
    there = datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    assert there[1]["input_ids"] == corpus.instances.tokens_IL[1].tolist()


def write(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_rows_are_documents_of_any_length_and_domain(corpus: Corpus, tmp_path: Path) -> None:
    path = write(
        tmp_path / "set.parquet",
        input_ids=[[1, 2, 3], [], [4], [5, 6, 7, 8, 0]],
        domain=["c", "none", None, "a"],
    )
    back = import_corpus(tmp_path / "back", path, "hf", str(corpus.tokenizer), 3)
    assert back.instances.tokens_IL.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert back.tokens.offsets.tolist() == [0, 3, 4, 9]
    assert back.instances.label_names == ("a", "c", "set")  # by the alphabet, so that corpora can be joined
    assert back.tokens.domains.tolist() == [1, 2, 0]
    counts = back.counts
    assert (counts["tokens"]["empty"], counts["instances"]["tokens_left_out"]) == (1, 1)


PADDED = [[9, 9, 1, 2, 0], [9, 9, 9, 9, 9], [3, 4, 0, 9, 9]]
MASK = [[0, 0, 1, 1, 1], [0] * 5, [1, 1, 1, 0, 0]]
LABELS = [
    [token if seen else -100 for token, seen in zip(*row, strict=True)]
    for row in zip(PADDED, MASK, strict=True)
]


@pytest.mark.parametrize(
    "columns",
    [{"attention_mask": MASK}, {"labels": LABELS}, {"labels": [[-100] * 5] * 3, "attention_mask": MASK}],
    ids=["mask", "labels", "both"],
)
def test_padding_of_rows_is_left_out(
    columns: dict[str, Any], corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "set.parquet", input_ids=PADDED, **columns)
    back = import_corpus(tmp_path / "back", path, "hf", str(corpus.tokenizer), 5)
    assert back.instances.tokens_IL.tolist() == [[1, 2, 0, 3, 4, 0]]
    assert back.tokens.offsets.tolist() == [0, 3, 6]
    assert (back.counts["tokens"]["masked"], back.counts["tokens"]["empty"]) == (9, 1)
    assert "9 tokens of padding left out" in capsys.readouterr().err


def test_tokens_without_ends_are_warned_of(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, last in (("with", 0), ("without", 3)):
        path = write(tmp_path / f"{name}.parquet", input_ids=[[1, 2, last]])
        import_corpus(tmp_path / name, path, "hf", str(corpus.tokenizer), 2)
    assert re.findall(r"(\w+)\.parquet: no EOS", capsys.readouterr().err) == ["without"]


def test_files_of_the_training_split_are_read_in_order(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("data/test-0.parquet", "data/train-0.parquet", "data/train-1.parquet", "validation/0.parquet")
    for i, name in enumerate(names):
        write(tmp_path / "set" / name, input_ids=[[i]])
    back = import_corpus(tmp_path / "back", tmp_path / "set", "hf", str(corpus.tokenizer), 1)
    assert back.instances.tokens_IL.flatten().tolist() == [1, 2]
    assert back.instances.label_names == ("set",)
    assert "2 files of other splits" in capsys.readouterr().err
    assert {*names[1:3]} <= load_artifact(tmp_path / "back" / "tokens").inputs.keys()


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"text": ["a"]}, "no column input_ids"),
        ({"input_ids": [[1, 9999]]}, "holds the id 9999"),
        ({"input_ids": [[1, -2]]}, "holds the id -2"),
        ({"input_ids": [[0.5]]}, "write lists of integers"),
        ({"input_ids": [1, 2]}, "write lists of integers"),
        ({"input_ids": [[1], None]}, "null"),
        ({"input_ids": [[1, None, 2]]}, "null"),
        ({"input_ids": [[1, 2]], "domain": [["x"]]}, "'domain' is a list"),
        ({"input_ids": [[1, 2]], "attention_mask": [[1]]}, "attention_mask is not as long"),
        ({"input_ids": [[1, 2]], "attention_mask": [1]}, "attention_mask are int64; write lists"),
        ({"input_ids": pyarrow.array([], pyarrow.list_(pyarrow.int32()))}, "no tokens"),
        ({"input_ids": [[1, 2, 3]]}, "3 tokens to train on are too few"),
        (None, "write it again"),
    ],
)
def test_wrong_tables_are_refused(
    columns: dict[str, Any] | None, reason: str, corpus: Corpus, tmp_path: Path
) -> None:
    path = write(tmp_path / "set.parquet", **columns or {"input_ids": [[1]]})
    if columns is None:
        path.write_bytes(b"PAR1")
    with pytest.raises(InputError, match=reason):
        import_corpus(tmp_path / "back", path, "hf", str(corpus.tokenizer), 3)


@pytest.mark.parametrize(
    ("source", "form", "tokenizer", "reason"),
    [
        ("nothing", "megatron", None, r"nothing\.idx"),
        ("nothing.bin", "megatron", None, r"nothing\.idx"),
        ("nothing.parquet", "hf", None, r"nothing\.parquet: no such file"),
        (".", "hf", None, "no parquet files"),
        ("nothing", "hf", "bpe:512", "bpe:512: the tokens exist already"),
    ],
)
def test_wrong_sources_are_refused(
    source: str, form: TokenFormat, tokenizer: str | None, reason: str, corpus: Corpus, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=reason):
        import_corpus(tmp_path / "back", tmp_path / source, form, tokenizer or str(corpus.tokenizer), 3)


def test_too_many_domains_are_refused(corpus: Corpus, tmp_path: Path) -> None:
    names = [str(i) for i in range(DOMAIN_LIMIT + 1)]
    path = write(tmp_path / "set.parquet", input_ids=[[1]] * len(names), domain=names)
    with pytest.raises(InputError, match="more than 65,536 domains"):
        import_corpus(tmp_path / "back", path, "hf", str(corpus.tokenizer), 1)


def test_a_folder_in_use_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    path = write(tmp_path / "set.parquet", input_ids=[[1, 2]])
    (tmp_path / "back").mkdir()
    with folder_lock(tmp_path / "back"), pytest.raises(InputError, match="at work here"):
        import_corpus(tmp_path / "back", path, "hf", str(corpus.tokenizer), 1)
    assert is_unused(tmp_path / "back")
    shutil.copytree(corpus.folder / "documents", tmp_path / "out" / "documents")
    with pytest.raises(InputError, match="holds documents of another corpus"):
        import_corpus(tmp_path / "out", path, "hf", str(corpus.tokenizer), 1)


def test_a_tokenizer_need_not_spell_every_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tokens are there already: words without an unknown one, and an alphabet without most bytes."""
    path = write(tmp_path / "set.parquet", input_ids=[[1, 2, 0]])
    vocabulary = {"<eos>": 0, "a": 1, "b": 2}
    for model in models.WordLevel(vocabulary, unk_token="<unk>"), models.BPE(vocabulary, []):
        out = tmp_path / type(model).__name__
        out.mkdir()
        Tokenizer(model).save(str(out / "tokenizer.json"))
        back = import_corpus(out / "back", path, "hf", str(out), 2)
        assert back.instances.tokens_IL.tolist() == [[1, 2, 0]]
        back = import_corpus(out / "other", path, "hf", str(out), 2, eos="b")
        assert back.instances.eos_token_id == 2
    assert "warning" not in capsys.readouterr().err


def test_an_existing_folder_is_not_overwritten_and_a_link_is_followed(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exists already"):
        export_corpus(corpus, "megatron", tmp_path)
    link, place = tmp_path / "link", tmp_path / "elsewhere" / "there"
    link.symlink_to(place)
    assert export_corpus(corpus, "megatron", link) == link
    assert link.is_symlink()
    assert (place / "instances.bin").exists()
    assert not list(tmp_path.glob(".*"))
