"""Commands on a corpus whose manifests, arrays or tokenizer were damaged or edited."""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hostile.runner import Harm, Row, rows_of
from hostile.template import PREPARE
from loriini.data.jobs.artifact import write_manifest

COMMANDS = {
    "inspect": "inspect corpus",
    "verify": "inspect corpus --verify",
    "megatron": "convert corpus --to megatron --out there",
    "train": "train tiny-dense --corpus corpus --out run --steps 1 --length 64",
    "prepare": PREPARE,
}


def replaced(content: bytes) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        path.write_bytes(content)

    return harm


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def doubled(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


def of_objects(path: Path) -> None:
    with open(path, "wb") as file:
        np.save(file, np.array([{"a": 1}], object), allow_pickle=True)


def first_value(value: float) -> Callable[[Path], None]:
    """The first number of an array replaced, such that its header stays."""

    def harm(path: Path) -> None:
        array = np.load(path)
        array.flat[0] = value
        np.save(path, array)

    return harm


def largest_ids(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


def edited(key: str, value: Any) -> Callable[[Path], None]:
    """A manifest's value replaced, and the manifest's own hash with it."""

    def harm(path: Path) -> None:
        manifest = {**json.loads(path.read_text()), key: value}
        del manifest["manifest"]
        write_manifest(path, manifest)

    return harm


def at(path: str, harm: Callable[[Path], None]) -> Harm:
    return lambda folder: harm(folder / "corpus" / path)


JSON = {
    "cut": halved,
    "garbage": replaced(b"\xff\x00\xfe"),
    "a list": replaced(b"[]"),
    "an empty object": replaced(b"{}"),
    "too deep": replaced(b"[" * 100_000),
    "a folder": as_folder,
    "of lists": replaced(b'{"settings": [], "stages": [], "inputs": [], "counts": [], "files": []}'),
}
EDITS = {
    "files that lead outside": edited("files", {"../../x": "0" * 64}),
    "hashes of another type": edited("files", {"instances.bin": 3}),
    "no counts": edited("counts", {}),
}
ARRAYS = {"absent": Path.unlink, "empty": replaced(b""), "cut": halved, "a folder": as_folder}
NUMPY = {"of objects": of_objects, "garbage": replaced(b"\x93NUMPY\xff\xff" * 9)}
OPENED = ("instances/instances.bin", "tokens/tokens.bin")
OPENED_NUMPY = (
    *(f"instances/{name}.npy" for name in ("piece_starts", "piece_documents", "piece_lengths", "domains")),
    *(f"tokens/{name}.npy" for name in ("offsets", "domains", "bytes")),
)
INSPECTED = ("neighbors/neighbors.npy", "neighbors/similarities.npy")
VERIFIED = ("embeddings/embeddings.npy", "order/order.npy")
EVERY = 5
"""One harm of these is tried in the suite, all in the drill."""


rows = partial(rows_of, COMMANDS, every=EVERY)


def tables() -> Iterator[Row]:
    every = tuple(COMMANDS)
    for i, stage in enumerate(
        ("", "documents/", "tokenizer/", "tokens/", "embeddings/", "order/", "instances/")
    ):
        path = f"{stage}manifest.json"
        harms = {name: at(path, harm) for name, harm in JSON.items()}
        yield from rows(f"{path} is", harms, every, r"manifest.json: not .*, and make it again", first=i)
    for i, stage in enumerate(("instances/", "tokens/")):
        path = f"{stage}manifest.json"
        harms = {name: at(path, harm) for name, harm in EDITS.items()}
        yield from rows(
            f"{path} has", harms, every, r"not a readable manifest|it is not the one that", first=i
        )
    for i, file in enumerate((*OPENED, *OPENED_NUMPY)):
        kinds = ARRAYS | (NUMPY if file in OPENED_NUMPY else {"doubled": doubled})
        harms = {name: at(file, harm) for name, harm in kinds.items()}
        name = file.split("/")[1]
        yield from rows(
            f"{file} is", harms, every, rf"{name} is not what was written; remove the folders", first=i
        )
    for i, file in enumerate((*INSPECTED, *VERIFIED)):
        harms = {name: at(file, harm) for name, harm in (ARRAYS | NUMPY).items()}
        name = file.split("/")[1]
        readers = ("inspect", "verify") if file in INSPECTED else ("verify",)
        yield from rows(f"{file} is", harms, readers, rf"{name} is not what was", first=i)
    floats = {f"holds {value}": first_value(value) for value in (math.nan, math.inf)}
    harms = {name: at("embeddings/embeddings.npy", harm) for name, harm in floats.items()}
    line = "embeddings.npy is not what was"
    yield from rows("embeddings.npy", harms, ("verify",), line)
    ids = {"has ids outside the vocabulary": at("instances/instances.bin", largest_ids)}
    yield from rows("instances.bin", ids, ("train", "megatron"), r"holds the id 65535, but the .* the corpus")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        kinds = {"absent": Path.unlink, "cut": halved, "another": replaced(b"{}"), "empty": replaced(b"")}
        harms = {name: at(f"tokenizer/{file}", harm) for name, harm in kinds.items()}
        yield from rows(f"{file} is", harms, every, rf"{file.split('.')[0]}.* is not what was written")
    folders = {
        "is absent": lambda folder: shutil.rmtree(folder / "corpus"),
        "has no manifest": lambda folder: (folder / "corpus" / "manifest.json").unlink(),
        "has no instances": lambda folder: shutil.rmtree(folder / "corpus" / "instances"),
    }
    commands = ("inspect", "verify", "megatron", "train")
    yield from rows("corpus", folders, commands, "loriini: .*")


ROWS = list(tables())
