"""Documents and their domains come back from an exported data set, however instances cut them."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from loriini.common.errors import InputError
from loriini.data.convert import corpus_export, corpus_import
from loriini.data.convert.corpus_export import export_corpus
from loriini.data.convert.corpus_import import import_corpus
from loriini.data.prepare.prepare import Corpus, prepare_documents
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.read.document import Document

LENGTH = 24
ROWS = 16


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Documents of a few tokens to more than a file, in random order, so that domains mix in instances.

    Most of their characters are several tokens.
    """
    chance = random.Random(0)

    def document(i: int) -> Document:
        size = 300 if i == 7 else chance.choice((0, 1, 3, 20))
        text = "".join(chr(0x4E00 + chance.randrange(20000)) for _ in range(size))
        return Document(f"d{i}", f"{i} {text}", "birds" if i % 2 else "tools")

    documents = [document(i) for i in range(40)]
    settings = PrepareSettings(tokenizer="bpe:300", length=LENGTH, order="random")
    folder = tmp_path_factory.mktemp("made") / "corpus"
    return prepare_documents(folder, lambda drop: documents, {"all": "1"}, settings)


@pytest.fixture
def several_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_export, "ROWS_PER_FILE", ROWS)
    monkeypatch.setattr(corpus_export, "ROWS_PER_BATCH", 5)


def there_and_back(corpus: Corpus, folder: Path, length: int, without: Sequence[str] = ()) -> Corpus:
    """Exported, imported as instances of `length`, perhaps without some of the columns."""
    there = export_corpus(corpus, "dataset", folder / "there")
    for path in there.glob("*.parquet"):
        pyarrow.parquet.write_table(pyarrow.parquet.read_table(path).drop_columns(list(without)), path)
    return import_corpus(folder / "back", there, str(corpus.tokenizer), length)


def pieces_loop(corpus: Corpus) -> list[tuple[int, int, list[int]]]:
    """Instance, document and tokens of each piece."""
    instances, pieces, found = corpus.instances, corpus.instances.pieces, []
    for i, row in enumerate(instances.tokens_IL.tolist()):
        for p in range(pieces.starts_I[i], pieces.starts_I[i + 1]):
            length = int(pieces.lengths_P[p])
            found.append((i, int(pieces.documents_P[p]), row[:length]))
            row = row[length:]
        assert not row
    return found


def documents_loop(corpus: Corpus) -> dict[int, list[int]]:
    """The documents that instances hold, in reading order: number to tokens."""
    held: dict[int, list[int]] = {}
    for _, number, tokens in pieces_loop(corpus):
        held.setdefault(number, []).extend(tokens)
    return held


def stored(corpus: Corpus) -> list[list[int]]:
    return [corpus.tokens.document(i).tolist() for i in range(len(corpus.tokens))]


def domains(corpus: Corpus) -> list[str]:
    """The domain of each document, by name."""
    return [corpus.tokens.domain_names[i] for i in corpus.tokens.domains]


def test_the_corpus_has_what_can_go_wrong(corpus: Corpus) -> None:
    instances, pieces = corpus.instances, corpus.instances.pieces
    kinds = corpus.tokens.domains[pieces.documents_P]
    held = [kinds[pieces.starts_I[i] : pieces.starts_I[i + 1]] for i in range(len(instances))]
    assert any(len(set(of_one)) > 1 for of_one in held)
    assert np.bincount(pieces.documents_P).max() > ROWS + 1  # through a whole file
    last = pieces.documents_P[-1]
    assert len(documents_loop(corpus)[last]) < len(corpus.tokens.document(last))  # a tail was cut
    assert list(documents_loop(corpus)) != sorted(documents_loop(corpus))


@pytest.mark.usefixtures("several_files")
@pytest.mark.parametrize("length", [LENGTH, 7, 100])
def test_documents_come_back_at_any_length(corpus: Corpus, tmp_path: Path, length: int) -> None:
    back = there_and_back(corpus, tmp_path, length)
    assert len(list((tmp_path / "there").glob("*.parquet"))) > 2
    held = documents_loop(corpus)
    assert stored(back) == list(held.values())
    numbers = list(held)
    assert domains(back) == [domains(corpus)[number] for number in numbers]
    # all but the last, from which the tail was cut
    assert stored(back)[:-1] == [stored(corpus)[number] for number in numbers[:-1]]
    assert back.tokens.bytes[:-1].tolist() == corpus.tokens.bytes[numbers[:-1]].tolist()
    for tokens in stored(back)[:-1]:
        assert np.flatnonzero(np.array(tokens) == back.tokens.eos_token_id).tolist() == [len(tokens) - 1]
    stream = corpus.instances.tokens_IL.ravel()
    expected = stream[: len(stream) // (length + 1) * (length + 1)].reshape(-1, length + 1)
    assert np.array_equal(back.instances.tokens_IL, expected)


@pytest.mark.usefixtures("several_files")
def test_instances_come_back_with_their_pieces_and_domains(corpus: Corpus, tmp_path: Path) -> None:
    back = there_and_back(corpus, tmp_path, LENGTH)
    order = {number: i for i, number in enumerate(documents_loop(corpus))}
    assert (back.folder / "instances" / "instances.bin").read_bytes() == (
        corpus.folder / "instances" / "instances.bin"
    ).read_bytes()
    assert pieces_loop(back) == [(i, order[number], tokens) for i, number, tokens in pieces_loop(corpus)]
    assert back.instances.domain_names == corpus.instances.domain_names
    assert np.array_equal(back.instances.domains_I, corpus.instances.domains_I)
    again = there_and_back(back, tmp_path / "again", LENGTH)
    assert stored(again) == stored(back)
    assert domains(again) == domains(back)


def test_documents_go_on_from_one_batch_of_a_file_to_the_next(corpus: Corpus, tmp_path: Path) -> None:
    short = there_and_back(corpus, tmp_path / "short", 3)
    pieces = short.instances.pieces
    first = pieces.starts_I[256]  # of the second batch that is read
    assert pieces.documents_P[first - 1] == pieces.documents_P[first]
    back = there_and_back(short, tmp_path, 3)
    assert len(list((tmp_path / "there").glob("*.parquet"))) == 1
    assert stored(back) == list(documents_loop(short).values())


def test_a_long_document_is_measured_in_parts(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = np.array([3, 0, 10, 1, 4, 0])
    table = pyarrow.table({"input_ids": [[65] * size for size in sizes]})
    pyarrow.parquet.write_table(table, tmp_path / "set.parquet")
    monkeypatch.setattr(corpus_import, "DECODED_TOKENS", 4)
    longest: list[int] = []
    opened = corpus_import.read_tokenizer

    class Watched:
        def __init__(self, folder) -> None:
            self.backend_tokenizer, self.decode = self, opened(folder).backend_tokenizer.decode_batch

        def decode_batch(self, ids, **options):
            longest.append(sum(map(len, ids)))
            return self.decode(ids, **options)

    monkeypatch.setattr(corpus_import, "read_tokenizer", Watched)
    back = import_corpus(tmp_path / "back", tmp_path / "set.parquet", str(corpus.tokenizer), 2)
    size = len(opened(corpus.tokenizer).decode([65]).encode())
    assert back.tokens.bytes.tolist() == (sizes[sizes > 0] * size).tolist()
    assert max(longest) < 2 * 4


@pytest.mark.usefixtures("several_files")
def test_without_piece_domains_a_document_has_that_of_the_row_of_its_longest_piece(
    corpus: Corpus, tmp_path: Path
) -> None:
    back = there_and_back(corpus, tmp_path, LENGTH, without=["piece_domains"])
    assert stored(back) == list(documents_loop(corpus).values())
    longest: dict[int, tuple[int, str]] = {}
    for i, number, tokens in pieces_loop(corpus):
        name = corpus.instances.domain_names[corpus.instances.domains_I[i]]
        if len(tokens) > longest.get(number, (0, ""))[0]:
            longest[number] = (len(tokens), name)
    assert domains(back) == [name for _, name in longest.values()]


@pytest.mark.parametrize("without", [["documents"], ["documents", "piece_domains"]])
def test_without_numbers_each_piece_is_a_document(corpus: Corpus, tmp_path: Path, without: list[str]) -> None:
    back = there_and_back(corpus, tmp_path, LENGTH, without)
    assert stored(back) == [tokens for _, _, tokens in pieces_loop(corpus)]
    if without == ["documents"]:
        assert domains(back) == [domains(corpus)[number] for _, number, _ in pieces_loop(corpus)]


def test_without_lengths_of_pieces_each_row_is_a_document(corpus: Corpus, tmp_path: Path) -> None:
    back = there_and_back(corpus, tmp_path, LENGTH, without=["piece_lengths"])
    assert stored(back) == corpus.instances.tokens_IL.tolist()
    assert domains(back) == [corpus.instances.domain_names[i] for i in corpus.instances.domains_I]


def write(folder: Path, *files: dict) -> Path:
    folder.mkdir()
    for i, columns in enumerate(files):
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"{i}.parquet")
    return folder


def test_only_consecutive_pieces_are_one_document(corpus: Corpus, tmp_path: Path) -> None:
    folder = write(
        tmp_path / "set",
        {
            "input_ids": [[1, 2, 3], [4, 5, 6]],
            "domain": ["b", "b"],
            "piece_lengths": [[1, 2], [3]],
            "documents": [[7, 8], [8]],
            "piece_domains": [["a", "b"], [None]],
        },
        {
            "input_ids": [[], [7, 8, 9]],
            "domain": ["c", "c"],
            "piece_lengths": [None, [1, 2]],
            "documents": [None, [8, 7]],
            "piece_domains": [None, ["b", None]],
        },
        {"input_ids": [[10, 11], [12]], "piece_lengths": [[2], [1]], "domain": ["a", "a"]},
        {"input_ids": [[13]], "piece_lengths": [[1]], "documents": [[7]], "domain": ["b"]},
    )
    back = import_corpus(tmp_path / "back", folder, str(corpus.tokenizer), 2)
    assert stored(back) == [[1], [2, 3, 4, 5, 6, 7], [8, 9], [10, 11], [12], [13]]
    assert domains(back) == ["a", "b", "c", "a", "a", "b"]


def test_lists_of_a_fixed_size_and_domains_that_are_not_numbers(corpus: Corpus, tmp_path: Path) -> None:
    pairs = pyarrow.list_(pyarrow.int64(), 2)
    rows = {"input_ids": [[1, 2, 3], [4, 5, 6]], "piece_lengths": pyarrow.array([[1, 2], [2, 1]], pairs)}
    folder = write(tmp_path / "set", {**rows, "domain": [float("nan"), 7.5]})
    back = import_corpus(tmp_path / "back", folder, str(corpus.tokenizer), 2)
    assert stored(back) == [[1], [2, 3], [4, 5], [6]]
    assert domains(back) == ["set", "set", "7.5", "7.5"]


def test_empty_rows_and_pieces_are_no_documents(corpus: Corpus, tmp_path: Path) -> None:
    folder = write(
        tmp_path / "set",
        {"input_ids": [[], [1, 2], [], [3], []], "domain": ["empty", "c", "c", "a", "d"]},
        {
            "input_ids": [[4, 5], [6], [7, 8], [9]],
            "piece_lengths": [[0, 2, 0], [0, 1], [2], [1]],
            "documents": [[1, 2, 3], [3, 3], [3], [4]],
            "piece_domains": [["none", "a", "none"], ["none", "b"], ["c"], ["a"]],
        },
        {"input_ids": [[10], [11]], "piece_lengths": [[1], [0, 1]], "documents": [[4], [5, 4]]},
    )
    back = import_corpus(tmp_path / "back", folder, str(corpus.tokenizer), 2)
    # an empty document comes between the two parts of number 4
    assert stored(back) == [[1, 2], [3], [4, 5], [6, 7, 8], [9, 10], [11]]
    assert domains(back) == ["c", "a", "a", "c", "a", "set"]
    assert back.tokens.domain_names == ("a", "c", "set")
    counts = back.manifest["stages"]["tokens"]["counts"]
    assert (counts["documents"], counts["empty"], counts["tokens"]) == (6, 5, 11)
    decode = corpus_import.read_tokenizer(corpus.tokenizer).decode
    assert back.tokens.bytes.tolist() == [len(decode(document).encode()) for document in stored(back)]
    assert [ids for _, _, ids in pieces_loop(back)] == [[1, 2], [3], [4, 5], [6], [7, 8], [9]]


@pytest.mark.parametrize(
    ("rows", "warned"),
    [
        ([[1, 2, 3], [4, 5]], True),
        ([[1, 2, 3], [4, 5, 0]], False),
        ([[0, 1, 2], [0, 4, 5]], False),  # before each document
        ([[1, 2], [3, 0], [], [4, 5], [6, 7]], False),  # documents cut into rows
        ([[1, 0, 2], [3, 4], [5, 6]], False),
        ([[1, 0, 2], *[[3, 4]] * 1000], True),  # a text that spells it
        ([[1, 0, 2], *[[]] * 1000, [3, 4]], False),
    ],
)
def test_documents_that_are_not_ended_are_named(
    rows: list[list[int]],
    warned: bool,
    corpus: Corpus,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = write(tmp_path / "set", {"input_ids": rows})
    back = import_corpus(tmp_path / "back", folder, str(corpus.tokenizer), 2)
    assert back.tokens.eos_token_id == 0
    found = back.manifest["stages"]["tokens"]["counts"]["eos_tokens"]
    assert found == sum(row.count(0) for row in rows)
    warning = f"warning: {folder}: {found} EOS tokens in {len(back.tokens):,} documents, so a model cannot"
    assert (warning in capsys.readouterr().err) == warned


PIECES = {"input_ids": [[1, 2]], "piece_lengths": [[1, 1]]}


@pytest.mark.parametrize("values", [[1], [1, 2, 3], [0, -1], [0, None], ["1", "2"], [0.5, 1.5], None, 3])
def test_documents_that_do_not_fit_are_refused(corpus: Corpus, tmp_path: Path, values: object) -> None:
    folder = write(tmp_path / "set", {**PIECES, "documents": [values]})
    with pytest.raises(InputError, match="the documents of a row are not a number for each of its"):
        import_corpus(tmp_path / "back", folder, str(corpus.tokenizer), 1)


@pytest.mark.parametrize("values", [["a"], ["a", "b", "c"], None, "ab"])
def test_domains_that_do_not_fit_are_refused(corpus: Corpus, tmp_path: Path, values: object) -> None:
    folder = write(tmp_path / "set", {**PIECES, "piece_domains": [values]})
    with pytest.raises(InputError, match="the piece_domains of a row are not a name for each of its"):
        import_corpus(tmp_path / "back", folder, str(corpus.tokenizer), 1)
