"""The domains that documents have by the names of their files."""

from pathlib import Path

import pytest

from loriini.sources.inputs import input_files
from loriini.sources.records import domain_from_name


@pytest.mark.parametrize(
    ("file", "domain"),
    [
        ("texts/web.train.jsonl.zst", "web"),
        ("web-00003-of-00064.parquet", "web"),
        ("web_part-0003.jsonl", "web_part"),
        ("web_000_00003.parquet", "web"),
        ("c4.jsonl", "c4"),
        ("00003.jsonl", "00003.jsonl"),
        (".hidden.jsonl", "hidden"),
        ("-00000-of-00001.jsonl", "-00000-of-00001.jsonl"),
        ("...", "..."),
    ],
)
def test_the_domain_of_a_file_is_never_empty(file: str, domain: str) -> None:
    assert domain_from_name(file) == domain


@pytest.mark.parametrize(
    ("file", "domain"),
    [
        ("part-00000.jsonl", "part"),
        ("00000.jsonl", "crawl"),
        ("poem_0001.txt", "crawl"),
        ("books/part-00000.jsonl", "books"),
        ("books/old/poem.txt", "books"),
    ],
)
def test_files_of_a_folder_that_differ_in_their_numbers_have_one_domain(
    file: str, domain: str, tmp_path: Path
) -> None:
    path = tmp_path / "crawl" / file
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    (found,) = input_files([f"{tmp_path}/crawl"])
    assert found.domain == domain
