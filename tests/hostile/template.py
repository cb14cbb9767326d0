"""The folder that every row copies: documents, and a corpus of them."""

from pathlib import Path

from cli.conftest import write_documents
from hostile.runner import call

PREPARE = (
    "prepare corpus --documents documents.jsonl --out . --domain-field topic --length 64 --tokenizer bpe:320"
)


def make_template(folder: Path) -> Path:
    folder.mkdir(parents=True)
    write_documents(folder / "documents.jsonl", 120)
    ended = call(PREPARE, folder)
    assert ended.code == 0, ended.err
    return folder
