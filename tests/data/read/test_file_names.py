"""Domains and splits by the names of files."""

from pathlib import Path

import pytest

from loriini.data.read.files import as_utf8
from loriini.data.read.inputs import input_files
from loriini.data.read.names import domain_from_name, heldout_files


@pytest.mark.parametrize("name", ["é😀", r"a\udce9é"])
def test_names_are_utf8_in_every_locale(name: str) -> None:
    raw = name.encode().replace(rb"\udce9", b"\xe9")
    for encoding in ("utf-8", "ascii"):
        assert as_utf8(raw.decode(encoding, "surrogateescape")) == name


@pytest.mark.parametrize(
    ("file", "domain"),
    [
        ("texts/web.train.jsonl.zst", "web"),
        ("web-00003-of-00064.parquet", "web"),
        ("web_part-0003.jsonl", "web_part"),
        ("web_000_00003.parquet", "web"),
        ("c4.jsonl", "c4"),
        ("00003.jsonl", "00003"),
        ("train-00003.jsonl", "train"),
        ("part-0.jsonl", "part-0"),
        ("web_000_112.jsonl", "web"),
        ("web_1999.jsonl", "web_1999"),
        ("web_20240131.jsonl", "web_20240131"),
        ("arxiv_2020-03.jsonl", "arxiv_2020-03"),
        ("covid-19.jsonl", "covid-19"),
        ("web_12000.jsonl", "web"),
        (".hidden.jsonl", "hidden"),
        ("-00000-of-00001.jsonl", "-00000-of-00001.jsonl"),
        ("...", "..."),
    ],
)
def test_the_domain_of_a_file_is_never_empty(file: str, domain: str) -> None:
    assert domain_from_name(file) == domain


def test_numbered_files_that_a_pattern_finds_have_the_domain_of_their_folder(tmp_path: Path) -> None:
    for name in (
        "crawl/0001.jsonl",
        "crawl/data/part-00002.jsonl",
        "crawl/train.jsonl",
        "crawl/web_003.jsonl",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = input_files([f"{tmp_path}/crawl/**/*.jsonl"])
    assert {file.name: file.domain for file in found} == {
        "0001.jsonl": "crawl",
        "part-00002.jsonl": "crawl",
        "train.jsonl": "train",
        "web_003.jsonl": "web",
    }


@pytest.mark.parametrize(
    ("file", "domain"),
    [
        ("part-00000.jsonl", "crawl"),
        ("00000.jsonl", "crawl"),
        ("000_00012.parquet", "crawl"),
        ("poem_0001.txt", "crawl"),
        ("books/part-00000.jsonl", "books"),
        ("books/2024/train-0.jsonl", "books"),
        ("train/en.jsonl", "en"),
        ("data/train/en_0001.jsonl", "en"),
        ("data/train-00000-of-00002.jsonl", "crawl"),
        ("books/old/poem.txt", "books"),
    ],
)
def test_a_file_in_a_folder_has_the_domain_of_the_nearest_name_that_says_something(
    file: str, domain: str, tmp_path: Path
) -> None:
    path = tmp_path / "crawl" / file
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    (found,) = input_files([f"{tmp_path}/crawl"])
    assert found.domain == domain


@pytest.mark.parametrize(
    ("paths", "held"),
    [
        (("dev/wiki-train.jsonl", "dev/wiki-validation.jsonl"), (1,)),
        (("/x/train/wiki-train.jsonl", "/x/train/wiki-test.jsonl"), (1,)),
        (("s/train/a.jsonl", "s/train/dev-tools.jsonl", "s/test/a.jsonl"), (2,)),
        (("s/train.jsonl", "s/a.jsonl", "s/test.jsonl"), (2,)),
        (("s/test/en/a.jsonl", "s/train/en/a.jsonl"), ()),  # too far from the file
        (("s/a.jsonl", "s/test.jsonl"), ()),
    ],
)
def test_files_of_other_splits_than_train_are_held_out(paths: tuple[str, ...], held: tuple[int, ...]) -> None:
    assert heldout_files(paths) == [paths[i] for i in held]
    assert heldout_files(("s/test/en/a", "s/train/en/a"), folders=None) == ["s/test/en/a"]
