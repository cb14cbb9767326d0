"""Dictionaries and views, of which any slice holds the whole column, are sent as plain values."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sources.reads import read, skipping, texts

from loriini.data.read import Fields, columns, decoder

LONGEST = 4000
"""Bytes of a row in these tests, at most: less than all texts together, more than those of two rows."""
LONG = "y" * 2 * LONGEST
TEXTS = [f"text number {i}, {'x' * 40}" for i in range(300)]
STRINGS = pa.array([*TEXTS[:150], LONG, *TEXTS[150:], "", None])
VIEWS = STRINGS.cast(pa.string_view())
INDICES = pa.array(range(len(STRINGS)), pa.int32())
KINDS = {
    "dictionary": STRINGS.dictionary_encode(),
    "large dictionary": STRINGS.cast(pa.large_string()).dictionary_encode(),
    "views": VIEWS,
    "dictionary of views": pa.DictionaryArray.from_arrays(INDICES, VIEWS),
}
ABSENT = pa.array([i % 3 == 0 for i in range(len(STRINGS))])


def in_struct(column: pa.Array) -> pa.Array:
    inner = pa.StructArray.from_arrays([column], ["source"], mask=ABSENT)
    return pa.StructArray.from_arrays([inner], ["meta"])


def in_lists(column: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(list(range(len(column) + 1)), column, mask=ABSENT)


def sent(column: pa.Array, longest: int) -> list[pa.RecordBatch | None]:
    batch = pa.RecordBatch.from_arrays([column], ["text"])
    return list(decoder._slices(batch, decoder._plain_schema(batch.schema), longest))


def rows_of(batches: list[pa.RecordBatch | None]) -> list[object]:
    return [row for batch in batches for row in (batch["text"].to_pylist() if batch else [None])]


def write(path: Path, **columns: pa.Array) -> Path:
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("inside", [pa.array, in_struct, in_lists])
@pytest.mark.parametrize("kind", KINDS)
def test_only_the_long_row_is_too_long(kind: str, inside: Callable[[pa.Array], pa.Array]) -> None:
    column = inside(KINDS[kind])
    expected = column.to_pylist()
    assert (expected[150] is None) == (inside is in_lists)  # an absent list does not hold the text
    expected[150] = expected[150] if inside is in_struct else None
    assert rows_of(sent(column, LONGEST)) == expected


@pytest.mark.parametrize("name", ["a.arrow", "a.parquet"])
def test_a_long_dictionary_over_short_texts(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MAX_RECORD_BYTES", LONGEST)
    hosts = pa.array([f"host-{i}.example.org" for i in range(3000)])
    domains = pa.DictionaryArray.from_arrays(pa.array(range(0, 3000, 10), pa.int32()), hosts)
    meta = pa.StructArray.from_arrays([domains], ["source"])
    path = write(tmp_path / name, text=pa.array(TEXTS).dictionary_encode(), domain=domains, meta=meta)
    for field in ("domain", "meta.source"):
        found = read(path, fields=Fields(domain=field))
        assert [(document.text, document.domain) for document in found] == list(
            zip(TEXTS, domains.to_pylist(), strict=True)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_is_sent_once(kind: str) -> None:
    """Each slice would otherwise hold all of them, and the time be quadratic."""
    column = KINDS[kind]
    rows = sum(
        batch.nbytes for i in range(0, 300, 30) for batch in sent(column.slice(i, 30), 1 << 26) if batch
    )
    assert rows < 1.5 * STRINGS.nbytes


def test_a_long_value_that_is_repeated_is_not_copied_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, copied = decoder._plain, list[int]()

    def copy(column: pa.Array, kind: pa.DataType) -> pa.Array:
        copied.append(plain(column, kind).nbytes)
        return plain(column, kind)

    monkeypatch.setattr(decoder, "_plain", copy)
    zeros = pa.array([0] * decoder.ROWS, pa.int32())
    for values in (pa.array(["z" * LONGEST]), pa.array(["z" * LONGEST], pa.string_view())):
        column = pa.DictionaryArray.from_arrays(zeros, values)
        for nested in (column, pa.StructArray.from_arrays([column], ["source"])):
            assert all(sent(nested, LONGEST + 100))
            assert max(copied) < LONGEST + 100


def test_invalid_utf8_in_views_drops_one_row(tmp_path: Path) -> None:
    column = pa.array([b"good", b"\xff", b"x"], pa.binary_view()).view(pa.string_view())
    path = write(tmp_path / "a.arrow", text=column)
    kept, dropped = skipping(path)
    assert kept == ["good", "x"]
    assert [(d.where, d.reason) for d in dropped] == [(f"{path}:2", "not valid UTF-8")]


def test_texts_as_views_and_ids_of_other_types(tmp_path: Path) -> None:
    ids = pa.array([5, None, 7]).dictionary_encode()
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])
    path = write(tmp_path / "a.arrow", text=VIEWS.slice(0, 3), id=ids, domain=runs)
    assert texts(path) == TEXTS[:3]
    assert [(d.id, d.domain) for d in read(path)] == [("5", "a"), ("a.arrow:2", "a"), ("7", "b")]


def test_a_dictionary_of_structs_is_sent_as_it_is() -> None:
    column = pa.DictionaryArray.from_arrays([0, 1, 1], pa.array([{"a": 1}, {"a": 2}]))
    (batch,) = sent(column, LONGEST)
    assert batch is not None
    assert batch["text"].equals(column)
