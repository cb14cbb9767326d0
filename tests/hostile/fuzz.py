"""Every reader on mutated files: it ends in documents, dropped records or one InputError, never otherwise."""

import gzip
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import zstandard

from hostile.files import MANY, arrow, parquet, response, texts_table, warc
from loriini.common.errors import InputError
from loriini.data.read.read import read_documents
from loriini.data.read.records import ReadOptions

NESTED = pa.table({"text": ["a", "b"] * 40, "meta": [{"n": i, "l": [1.5] * i} for i in range(80)]})
CODED = texts_table().set_column(2, "domain", pa.array(["a", "b", "c"] * 20).dictionary_encode())
PAGES = b"".join(
    response(b"<html><body><p>" + b"many words here " * 40 + b"</p></body></html>") for _ in "abc"
)
CSV = b"id,text,domain\n" + b"".join(b'%d,"some ""quoted""\ntext",web\n' % i for i in range(60))
SEEDS = {
    "jsonl": MANY,
    "jsonl.gz": gzip.compress(MANY, mtime=0),
    "jsonl.zst": zstandard.compress(MANY),
    "csv": CSV,
    "tsv": CSV.replace(b",", b"\t"),
    "txt": MANY,
    "parquet": parquet(CODED),
    "nested.parquet": parquet(NESTED),
    "arrow": arrow(CODED),
    "nested.arrow": arrow(NESTED),
    "warc": PAGES + warc("conversion", b"plain words"),
    "warc.gz": gzip.compress(PAGES, mtime=0),
}


def mutated(data: bytes, seed: int) -> bytes:
    """The file with flipped bits, other bytes, a piece left out, repeated or moved, or its end cut off."""
    rng, changed = random.Random(seed), bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20, 100))):
        place = rng.randrange(len(changed)) if changed else 0
        piece = bytes(changed[place : place + rng.randrange(1, 60)])
        kind = rng.choice(("flip", "flip", "byte", "byte", "cut", "repeat", "move", "end"))
        if not changed:
            break
        if kind == "flip":
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == "byte":
            changed[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x0A))
        elif kind == "end" and rng.random() < 0.2:
            del changed[place:]
        elif kind == "cut":
            del changed[place : place + len(piece)]
        elif kind == "repeat":
            changed[place:place] = piece
        elif kind == "move":
            target = rng.randrange(len(changed))
            changed[target : target + len(piece)] = piece
    return bytes(changed)


def read_all(form: str, count: int, folder: Path) -> dict[str, int]:
    """How reading `count` mutated files of a format ended, counted."""
    path, ended = folder / f"file.{form}", Counter[str]()
    for seed in range(count):
        path.write_bytes(mutated(SEEDS[form], seed))
        ended[_read(path)] += 1
    return dict(ended)


def _read(path: Path) -> str:
    dropped: list[Any] = []
    try:
        for document in read_documents([path], ReadOptions(on_error="skip"), dropped.append):
            document.text.encode()
    except InputError:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return "read in part" if dropped else "read"
