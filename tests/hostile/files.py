"""Hostile input files, as functions that write them into a folder."""

import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from hostile.runner import Harm

MIB = 1 << 20
GOOD = b'{"text": "some good words"}\n'
TEXTS = [f"the {i} birds sing of {i * i} trees and {i + 7} stones" for i in range(60)]
MANY = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()


def write(name: str, content: bytes | Callable[[], bytes]) -> Harm:
    def harm(folder: Path) -> None:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content())

    return harm


def unpacks_to(name: str, block: bytes, times: int) -> Harm:
    """A compressed file of a block many times, written without holding it."""

    def harm(folder: Path) -> None:
        with zstandard.open(folder / name, "wb") as file:
            for _ in range(times):
                file.write(block)

    return harm


def parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()


def arrow(table: pa.Table) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def texts_table() -> pa.Table:
    return pa.table({"text": TEXTS, "id": list(map(str, range(len(TEXTS)))), "domain": ["a"] * len(TEXTS)})


def flipped(data: bytes, seed: int = 0, flips: int = 12, spare: int = 8) -> bytes:
    """Some bits flipped, none in the first and last bytes, which hold the format's name."""
    rng, changed = random.Random(seed), bytearray(data)
    for _ in range(flips):
        changed[rng.randrange(spare, max(spare + 1, len(data) - spare))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def warc(kind: str, content: bytes, **headers: str) -> bytes:
    lines = {"WARC-Type": kind, "WARC-Record-ID": "<urn:1>", "Content-Length": str(len(content)), **headers}
    head = "WARC/1.0\r\n" + "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return head.encode() + b"\r\n" + content + b"\r\n\r\n"


def response(body: bytes, kind: str = "text/html", more: str = "") -> bytes:
    content = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{more}\r\n".encode() + body
    return warc("response", content, WARC_Target_URI="http://a")
