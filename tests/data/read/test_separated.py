"""Quotes and separators of csv and tsv files that are not what the file's name says."""

import csv
import io
from pathlib import Path

import pytest
from sources.reads import skipping, texts

from loriini.common.errors import InputError
from loriini.data.read import Fields

MAY_BE_ROWS = "a quoted field that may be rows"


def quoted(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter="\t").writerows(rows)
    return text.getvalue()


def write(path: Path, content: str) -> Path:
    path.write_text(content, newline="")
    return path


@pytest.mark.parametrize("between", ["", "3\tthree\n", "\n", "3\tthree\tmore\n"])
def test_a_quote_that_begins_a_text_takes_in_no_rows(tmp_path: Path, between: str) -> None:
    """Unquoted tsv: the quote in line 2 would make one document of all up to the next that ends a field."""
    path = write(tmp_path / "a.tsv", f'id\ttext\n1\t"No, said she\n{between}4\tand said no"\n5\tlast\n')
    last = 3 + between.count("\n")
    with pytest.raises(
        InputError,
        match=rf"a\.tsv:2: {MAY_BE_ROWS} \(lines 2 to {last}\); fix the file: write fields with quotes as in "
        "RFC 4180, or the file as JSON lines, or pass --on-error skip",
    ):
        texts(path)
    kept, dropped = skipping(path)
    assert kept == ["last"]
    assert [(d.where, d.reason, d.detail) for d in dropped] == [
        (f"{path}:2", MAY_BE_ROWS, f"lines 2 to {last}")
    ]


@pytest.mark.parametrize(
    "text",
    [
        'said "no",\nand left',
        "def f():\n\treturn 1\n",
        "a\tb\nc\td",
        "#if\tX\na\nb\nc\n",
        "\n1\tone\n2\ttwo\n",
        "one\ttwo",
        "\n\n",
    ],
)
@pytest.mark.parametrize("names", [["id", "text"], ["text", "id"], ["text"]])
def test_quoted_tsv_is_read(tmp_path: Path, text: str, names: list[str]) -> None:
    values = {"id": "7", "text": text + "."}
    rows = [names, [values[name] for name in names], ["last"] * len(names)]
    assert texts(write(tmp_path / "a.tsv", quoted(rows))) == [text + ".", "last"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('2\t"No," said she', "misplaced quote or line end, and the rest of the file"),
        ('2\t"No', "unclosed quote, and the rest of the file"),
    ],
)
def test_a_misplaced_quote_in_tsv_names_the_remedy(tmp_path: Path, row: str, reason: str) -> None:
    path = write(tmp_path / "a.tsv", f"id\ttext\n1\tone\n{row}\n3\tthree\n")
    with pytest.raises(
        InputError, match=rf"a\.tsv:3: {reason}.*; fix the file: .*, or the file as JSON lines"
    ):
        texts(path)


def test_tabs_in_csv_are_a_part_of_the_text(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.csv", 'id,text\n1,"a\tb\nc\td"\n')) == ["a\tb\nc\td"]


def test_columns_that_a_quote_took_in_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'id,text\n1,"one\n2,two"\n3,"three\n4",four\n5,five\n')
    kept, dropped = skipping(path)
    assert kept == ["one\n2,two", "five"]
    assert [(d.where, d.reason, d.detail) for d in dropped] == [
        (
            f"{path}:4",
            "wrong number of columns",
            "3 where the header has 2, in lines 4 to 5: is a quote unclosed?",
        )
    ]


@pytest.mark.parametrize(
    ("name", "header", "separators", "fix"),
    [
        ("a.csv", "id;text", "';'", "file: write it with commas, or as .tsv with tabs"),
        ("a.csv", "id|text", "'|'", "file: write it with commas, or as .tsv with tabs"),
        ("a.csv", '"id";"text"', "';'", "file: write it with commas, or as .tsv with tabs"),
        ("a.csv", "sep=;", "';'", "file: write it with commas, or as .tsv with tabs"),
        ("a.csv", "id\ttext", "tabs", "file's name: .tsv in place of .csv"),
        ("a.tsv", "id;text", "';'", "file: write it with commas, or as .tsv with tabs"),
        ("a.tsv", "id,text", "commas", "file's name: .csv in place of .tsv"),
        ("a.tsv", '"id","text"', "commas", "file's name: .csv in place of .tsv"),
    ],
)
def test_another_separator_is_named(
    tmp_path: Path, name: str, header: str, separators: str, fix: str
) -> None:
    path = write(tmp_path / name, f"{header}\n1;one, two\n")
    with pytest.raises(InputError) as refused:
        texts(path)
    message = f"no text column (its columns are separated by {separators}); fix the {fix}, or pass "
    assert message in str(refused.value)
    assert "--text-field" not in str(refused.value)


def test_a_column_may_have_a_separator_in_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "title;text\none\n")
    assert texts(path, fields=Fields(text="title;text")) == ["one"]
    with pytest.raises(InputError, match=r"'text' is not among a;b, c\); fix the file or name the field"):
        texts(write(path, "a;b,c\n1,2\n"))
    with pytest.raises(InputError, match=r"'text' is not among body\); fix the file or name the field"):
        texts(write(path, "body\n1\n"))


def test_formats_are_named_only_where_nothing_was_found(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id;text\n1;one\n")
    with pytest.raises(
        InputError,
        match=r"no document found \(1 left out: no text column\); correct what was left out, or give other "
        "files or limits$",
    ):
        skipping(path)
    with pytest.raises(InputError, match=r"no document found; give \.jsonl, .* or text files$"):
        skipping(write(tmp_path / "b.csv", "text\n"))
