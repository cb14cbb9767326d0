"""Corpora exported and imported have the same instances."""

import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from tokenizers import Tokenizer, models

from loriini.common.atomic import is_unused
from loriini.common.errors import InputError
from loriini.data.convert import corpus_export, corpus_import
from loriini.data.convert.corpus_export import CORPUS_FORMATS, export_corpus
from loriini.data.convert.corpus_import import import_corpus
from loriini.data.convert.megatron import read_megatron
from loriini.data.jobs.artifact import load_artifact
from loriini.data.jobs.lock import folder_lock
from loriini.data.prepare.prepare import Corpus, open_corpus
from runs import prepared, write_tokenizer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return prepared(tmp_path_factory.mktemp("exchange") / "sums")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that an export has several files, and each several blocks."""
    for name, size in (("BLOCK_TOKENS", 200), ("ROWS_PER_FILE", 7), ("ROWS_PER_BATCH", 3)):
        for module in (corpus_export, corpus_import):
            monkeypatch.setattr(module, name, size, raising=False)


def source(folder: Path, form: str) -> Path:
    return folder / "instances" if form == "megatron" else folder


@pytest.mark.parametrize("form", CORPUS_FORMATS)
def test_export_and_import_give_the_same_instances(corpus: Corpus, tmp_path: Path, form: str) -> None:
    folder = export_corpus(corpus, form, tmp_path / "there")
    tokenizer = str(folder / "tokenizer")
    back = import_corpus(tmp_path / "back", source(folder, form), tokenizer, corpus.instances.length)
    assert np.array_equal(back.instances.tokens_IL, corpus.instances.tokens_IL)
    assert back.instances.eos_token_id == corpus.instances.eos_token_id
    assert back.instances.vocab_size == corpus.instances.vocab_size
    again = import_corpus(tmp_path / "back", source(folder, form), tokenizer, corpus.instances.length)
    assert again.manifest == back.manifest


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


def test_a_data_set_keeps_documents_apart_and_each_instances_domain(corpus: Corpus, tmp_path: Path) -> None:
    folder = export_corpus(corpus, "dataset", tmp_path / "there")
    back = import_corpus(tmp_path / "back", folder, str(corpus.tokenizer), corpus.instances.length)
    every = np.arange(len(corpus.instances))
    positions = corpus.instances.positions(every)
    assert (positions == 0).sum() > len(every)  # some instance holds several documents
    assert np.array_equal(back.instances.positions(every), positions)

    def domains(of: Corpus) -> list[str]:
        return [of.instances.domain_names[i] for i in of.instances.domains_I]

    assert domains(back) == domains(corpus)


def test_prepare_leaves_an_imported_corpus_as_it_is(corpus: Corpus, tmp_path: Path) -> None:
    folder = export_corpus(corpus, "dataset", tmp_path / "there")
    import_corpus(tmp_path / "back", folder, str(corpus.tokenizer), corpus.instances.length)
    with pytest.raises(InputError, match=r"back: holds a corpus without documents, .*, imported or older"):
        prepared(tmp_path / "back")
    assert len(open_corpus(tmp_path / "back").instances) == len(corpus.instances)
    assert not (tmp_path / "back" / "documents").exists()


def test_a_data_set_names_the_documents_of_an_instance(corpus: Corpus, tmp_path: Path) -> None:
    folder = export_corpus(corpus, "dataset", tmp_path / "there")
    tables = [pyarrow.parquet.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    rows = [row for table in tables for row in table.to_pylist()]
    instances, pieces = corpus.instances, corpus.instances.pieces
    assert len(rows) == len(instances)
    assert len(tables) == -(-len(rows) // 7)
    for i, row in enumerate(rows):
        held = slice(pieces.starts_I[i], pieces.starts_I[i + 1])
        assert row["input_ids"] == instances.tokens_IL[i].tolist()
        assert row["documents"] == pieces.documents_P[held].tolist()
        assert row["piece_lengths"] == pieces.lengths_P[held].tolist()
        assert row["piece_domains"] == ["sums"] * len(row["documents"])
        assert row["domain"] == instances.domain_names[instances.domains_I[i]]


def test_the_datasets_library_opens_the_folder(corpus: Corpus, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    folder = export_corpus(corpus, "dataset", tmp_path / "there")
    there = datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    assert there[1]["input_ids"] == corpus.instances.tokens_IL[1].tolist()


def test_rows_are_documents_of_any_length_and_domain(corpus: Corpus, tmp_path: Path) -> None:
    table = pyarrow.table({"input_ids": [[1, 2, 3], [4], [5, 6, 7, 8, 9]], "domain": ["a", "b", "a"]})
    pyarrow.parquet.write_table(table, tmp_path / "set.parquet")
    back = import_corpus(tmp_path / "back", tmp_path / "set.parquet", str(corpus.tokenizer), 3)
    assert back.instances.tokens_IL.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert back.tokens.offsets.tolist() == [0, 3, 4, 9]
    assert back.tokens.domains.tolist() == [0, 1, 0]
    assert back.instances.domain_names == ("a", "b")
    assert back.manifest["stages"]["instances"]["counts"]["tokens_left_out"] == 1


def test_domains_are_in_alphabetical_order(corpus: Corpus, tmp_path: Path) -> None:
    table = pyarrow.table({"input_ids": [[1, 2], [3, 4], [5, 6]], "domain": ["c", "a", "b"]})
    pyarrow.parquet.write_table(table, tmp_path / "set.parquet")
    back = import_corpus(tmp_path / "back", tmp_path / "set.parquet", str(corpus.tokenizer), 1)
    assert back.instances.label_names == ("a", "b", "c")
    assert back.instances.labels(np.arange(3)).tolist() == [2, 0, 1]


@pytest.mark.parametrize("length", [6, 10**30])
def test_a_source_shorter_than_an_instance_is_refused(corpus: Corpus, tmp_path: Path, length: int) -> None:
    pyarrow.parquet.write_table(
        pyarrow.table({"input_ids": [[1, 2, 3], [4, 5, 6]]}), tmp_path / "set.parquet"
    )
    with pytest.raises(InputError, match="6 tokens to train on are too few for one instance"):
        import_corpus(tmp_path / "back", tmp_path / "set.parquet", str(corpus.tokenizer), length)


def test_files_of_the_same_name_in_several_folders(corpus: Corpus, tmp_path: Path) -> None:
    for i in range(2):
        folder = tmp_path / "set" / str(i)
        folder.mkdir(parents=True)
        pyarrow.parquet.write_table(pyarrow.table({"input_ids": [[1, 2, 3 + i]]}), folder / "x.parquet")
    import_corpus(tmp_path / "back", tmp_path / "set", str(corpus.tokenizer), 2)
    assert {"0/x.parquet", "1/x.parquet"} <= load_artifact(tmp_path / "back" / "tokens").inputs.keys()


def test_files_follow_each_other_by_the_numbers_in_their_names(corpus: Corpus, tmp_path: Path) -> None:
    names = [f"{shard}/part-{i}.parquet" for shard in ("v2", "v10") for i in (0, 1, 2, 10, 11)]
    for i, name in enumerate(names):
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.table({"input_ids": [[i]]}), path)
    back = import_corpus(tmp_path / "back", tmp_path / "set", str(corpus.tokenizer), 1)
    assert back.instances.tokens_IL.flatten().tolist() == list(range(len(names)))


def test_too_many_domains_are_refused(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loriini.data.prepare.text.documents.DOMAIN_LIMIT", 1)
    table = pyarrow.table({"input_ids": [[1, 2], [3, 4]], "domain": ["a", "b"]})
    pyarrow.parquet.write_table(table, tmp_path / "set.parquet")
    with pytest.raises(InputError, match="more than 1 domains"):
        import_corpus(tmp_path / "back", tmp_path / "set.parquet", str(corpus.tokenizer), 1)


def test_wrong_sources_are_refused(corpus: Corpus, tmp_path: Path) -> None:
    tokenizer = str(corpus.tokenizer)

    def refused(columns: dict, reason: str) -> None:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        with pytest.raises(InputError, match=reason):
            import_corpus(tmp_path / "back", path, tokenizer, 3)

    refused({"text": ["a"]}, "no column input_ids")
    refused({"input_ids": [[1, 9999]]}, "holds the id 9999, but the tokenizer has")
    refused({"input_ids": [[1, -2]]}, "holds the id -2")
    refused({"input_ids": [[1], None]}, "a row has no input_ids")
    refused({"input_ids": [[0.5]]}, "input_ids are float64, not integers")
    refused({"input_ids": [[1, None, 2]]}, "a row has a null among its input_ids")
    refused({"input_ids": [[1, 2]], "domain": [["x"]]}, "the domain is not a string .*'domain' holds a list")
    for repeated in ("input_ids", "domain"):
        path, names = tmp_path / "two.parquet", ["input_ids", "domain", repeated]
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array([[1]])] * 3, names), path)
        with pytest.raises(InputError, match=rf"two\.parquet: two columns named {repeated}; leave one out"):
            import_corpus(tmp_path / "back", path, tokenizer, 3)
    for pieces in ([1], [3, -1], [1, None], ["2"], 2):
        refused({"input_ids": [[1, 2]], "piece_lengths": [pieces]}, "piece_lengths of a row are not its tok")
    refused({"input_ids": pyarrow.array([], pyarrow.list_(pyarrow.int32()))}, "holds no tokens")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no parquet files here"):
        import_corpus(tmp_path / "back", tmp_path / "empty", tokenizer, 3)
    for name in "nothing", "nothing.bin", "nothing.idx", "no/thing":
        message = f"{tmp_path / name}: no such file, folder or Megatron prefix; check the path"
        with pytest.raises(InputError, match=rf"^{message}$"):
            import_corpus(tmp_path / "back", tmp_path / name, tokenizer, 3)
    for name in "half.bin", "half":  # as nanoGPT's
        (tmp_path / "half.bin").write_bytes(b"ids")
        with pytest.raises(InputError, match=r"half\.idx: no such file; a Megatron data set is"):
            import_corpus(tmp_path / "back", tmp_path / name, tokenizer, 3)
    with pytest.raises(InputError, match=r"nothing\.parquet: no such file; check the path$"):
        import_corpus(tmp_path / "back", tmp_path / "nothing.parquet", tokenizer, 3)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"bad\.parquet: unreadable parquet"):
        import_corpus(tmp_path / "back", tmp_path / "bad.parquet", tokenizer, 3)
    with pytest.raises(InputError, match="bpe:512: the tokens exist already"):
        import_corpus(tmp_path / "new", tmp_path / "bad.parquet", "bpe:512", 3)


def test_a_folder_of_megatron_files_is_refused_by_their_prefix(corpus: Corpus, tmp_path: Path) -> None:
    tokenizer, length = str(corpus.tokenizer), corpus.instances.length
    folder = export_corpus(corpus, "megatron", tmp_path / "cv" / "m.1")
    prefix = folder / "instances"
    (folder / "manifest.json").write_text('{"of": "another program"}')
    for given in folder, folder.parent:
        with pytest.raises(InputError) as refused:
            import_corpus(tmp_path / "back", given, tokenizer, length)
        assert (
            str(refused.value) == f"{given}: holds a Megatron data set; give its prefix, {folder}/instances"
        )
    prefix = Path(str(refused.value).split("prefix, ")[1])
    assert len(import_corpus(tmp_path / "back", prefix, tokenizer, length).instances) == len(corpus.instances)
    for name in "a.b.bin", "a.b.idx":
        (folder.parent / name).touch()
    with pytest.raises(InputError, match=r"cv: holds 2 .*; give the prefix of one, such as .*cv/a\.b$"):
        import_corpus(tmp_path / "other", folder.parent, tokenizer, length)


def test_a_corpus_is_not_imported(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"sums: is a corpus already; train on it as it is"):
        import_corpus(tmp_path / "back", corpus.folder, str(corpus.tokenizer), 3)
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("name", ["tokens/a/set.parquet", "order/set.parquet", "manifest.json"])
def test_a_folder_that_holds_other_files_is_refused(name: str, corpus: Corpus, tmp_path: Path) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({"input_ids": [[1, 2]]}), mine)
    before = mine.read_bytes()
    with pytest.raises(InputError, match=r"holds files that are not a stage|not a readable manifest"):
        import_corpus(tmp_path, mine.parent, str(corpus.tokenizer), 1)
    assert mine.read_bytes() == before
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]


def test_what_a_killed_prepare_left_is_refused_before_anything_is_read(
    corpus: Corpus, tmp_path: Path
) -> None:
    shutil.copytree(corpus.folder / "documents", tmp_path / "out" / "documents")
    with pytest.raises(InputError, match=r"out: holds documents of another corpus; choose another --out"):
        import_corpus(tmp_path / "out", tmp_path / "absent.parquet", str(corpus.tokenizer), 1)


def test_of_a_data_set_with_splits_the_training_text_is_imported(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pyarrow.table({"input_ids": [[1, 2, 3, 4]]})
    files = ("data/test-0.parquet", "data/train-0.parquet", "validation/0.parquet")
    for name in files:
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(rows, tmp_path / "set" / name)
    back = import_corpus(tmp_path / "back", tmp_path / "set", str(corpus.tokenizer), 3)
    assert (len(back.instances), back.instances.domain_names) == (1, ("set",))
    assert "2 files of other splits than train are left out (test, validation)" in capsys.readouterr().err
    (tmp_path / "set" / files[1]).unlink()
    assert len(import_corpus(tmp_path / "rest", tmp_path / "set", str(corpus.tokenizer), 3).instances) == 2


def test_files_without_the_name_of_a_split_are_imported_too(corpus: Corpus, tmp_path: Path) -> None:
    rows = pyarrow.table({"input_ids": [[1, 2, 3, 4]]})
    for name in (
        "en/train/0-c++.parquet",
        "en/test/0.parquet",
        "test/en/0.parquet",
        "de/code-java.v2.parquet",
        "train/dev-tools.parquet",
    ):
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(rows, tmp_path / "set" / name)
    back = import_corpus(tmp_path / "back", tmp_path / "set", str(corpus.tokenizer), 3)
    assert back.instances.domain_names == ("0-c++", "code-java", "dev-tools")


@pytest.mark.parametrize("form", CORPUS_FORMATS)
def test_another_tokenizer_than_that_beside_the_tokens_is_refused(
    form: str, corpus: Corpus, tmp_path: Path
) -> None:
    folder = export_corpus(corpus, form, tmp_path / "there")
    other = write_tokenizer(tmp_path / "other")
    with pytest.raises(InputError, match=r"other: has other tokens than .*there/tokenizer, which encoded"):
        import_corpus(tmp_path / "back", source(folder, form), str(other), corpus.instances.length)
    assert not (tmp_path / "back").exists()


def test_a_tokenizer_need_not_spell_every_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tokens are there already: words without an unknown one, and an alphabet without most bytes."""
    pyarrow.parquet.write_table(pyarrow.table({"input_ids": [[1, 2, 0]]}), tmp_path / "set.parquet")
    vocabulary = {"<eos>": 0, "a": 1, "b": 2}
    for model in models.WordLevel(vocabulary, unk_token="<unk>"), models.BPE(vocabulary, []):
        out = tmp_path / type(model).__name__
        out.mkdir()
        Tokenizer(model).save(str(out / "tokenizer.json"))
        back = import_corpus(out / "back", tmp_path / "set.parquet", str(out), 2)
        assert back.instances.tokens_IL.tolist() == [[1, 2, 0]]
    assert "warning" not in capsys.readouterr().err


def test_an_existing_folder_is_not_overwritten(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exists already"):
        export_corpus(corpus, "megatron", tmp_path)


def test_a_link_to_nothing_leads_to_the_export(corpus: Corpus, tmp_path: Path) -> None:
    link, place = tmp_path / "link", tmp_path / "elsewhere" / "there"
    link.symlink_to(place)
    assert export_corpus(corpus, "megatron", link) == link
    assert link.is_symlink()
    assert (place / "instances.bin").exists()
    assert not list(tmp_path.glob(".*"))


def test_a_locked_folder_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"input_ids": [[1, 2]]}), tmp_path / "set.parquet")
    (tmp_path / "back").mkdir()
    with folder_lock(tmp_path / "back"), pytest.raises(InputError, match="at work here"):
        import_corpus(tmp_path / "back", tmp_path / "set.parquet", str(corpus.tokenizer), 1)
    assert is_unused(tmp_path / "back")
