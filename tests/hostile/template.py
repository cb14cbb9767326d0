"""The folders that rows copy: documents and a corpus of them; with a run, and a twin of another seed."""

import json
import shutil
from pathlib import Path

from cli.conftest import write_documents
from hostile.runner import call

PREPARE = (
    "prepare corpus --documents documents.jsonl --out . --domain-field topic --length 64 --tokenizer bpe:320"
)

TRAIN = (
    "train tiny-lory --corpus corpus --out run --steps 4 --checkpoint.every 2 --length 64 --batch_size 2 "
    "--routing.segment_length 16 --model.hidden_size 32 --model.intermediate_size 64 --model.num_experts 2"
)


def make_template(folder: Path) -> Path:
    folder.mkdir(parents=True)
    write_documents(folder / "documents.jsonl", 120)
    ended = call(PREPARE, folder)
    assert ended.code == 0, ended.err
    return folder


def make_run_template(template: Path, folder: Path) -> Path:
    shutil.copytree(template, folder)
    ended = call(TRAIN, folder)
    assert ended.code == 0, ended.err
    shutil.copytree(folder / "run", folder / "twin")
    settings = folder / "twin" / "run.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "seed": 1}))
    return folder
