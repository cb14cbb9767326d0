"""Data sets by name, streamed by the datasets library: `hf:NAME`, `hf:NAME:SPLIT`, `hf:NAME:CONFIG:SPLIT`.

They are read in another process: a damaged file can crash it, and then ends only its shard.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from huggingface_hub import HfApi

from loriini.common.errors import InputError
from loriini.data.read.columns import run_decoder
from loriini.data.read.optional import import_optional
from loriini.data.read.records import MAX_RECORD_BYTES, TOO_LONG, BadRecord, Fields, Records

PREFIX = "hf:"
_Rows = tuple[dict[str, Any], Iterator[dict[str, Any] | None], Callable[[], str]]


def is_data_set(path: str) -> bool:
    """Whether a path names a data set. `hf://datasets/ORG/NAME/FOLDER` are files."""
    return path.startswith(PREFIX) and not path.startswith("hf://")


def saved_folder(path: str) -> str | None:
    """The folder on this machine that holds a data set; None for one on the Hub and for other paths."""
    name = _split(path)[0] if is_data_set(path) else ""
    return name if os.path.isdir(name) else None


def plain_name(path: str) -> str:
    """`hf:ORG/NAME` for `hf://datasets/ORG/NAME`; any other path unchanged."""
    whole = re.fullmatch(r"hf://datasets/([^/]+/[^/]+)/?", path)
    return PREFIX + whole[1] if whole else path


def shard_count(path: str, commit: str | None) -> int:
    """The number of shards of a data set; InputError when it cannot be opened."""
    import_optional("datasets", path)
    with _rows(path, commit, None, []) as (info, _, failure):
        if not info:
            raise _unreachable(path, failure())
        return int(info["shards"])


def read_shard(path: str, commit: str | None, shard: tuple[int, int], fields: Fields) -> Records:
    """The rows of shard i of n of a data set, only the columns needed where they are known."""
    with _rows(path, commit, shard, sorted(fields.columns)) as (info, rows, failure):
        if not info:
            raise _unreachable(path, failure())
        if info["columns"]:
            fields.check_text_column(info["columns"])
        yield from enumerate((BadRecord(TOO_LONG) if row is None else row for row in rows), 1)
        if reason := failure():  # of the network, of any file format, or a crash
            raise BadRecord("unreadable data set", reason, fix="data set")


def revision(path: str) -> str | None:
    """The commit of a data set on the Hub; None for a folder on this machine."""
    if saved_folder(path):
        return None
    try:
        return str(HfApi().dataset_info(_split(path)[0]).sha)
    except Exception as error:
        raise _unreachable(path, error) from None


@contextmanager
def _rows(
    path: str, commit: str | None, shard: tuple[int, int] | None, columns: list[str]
) -> Iterator[_Rows]:
    """A data set's shards or columns ({} if it cannot be opened), a shard's rows, and why they ended."""
    index, count = shard or (None, 1)
    place = json.dumps([*_split(path), commit, index, count])
    with run_decoder(path, "dataset", place, json.dumps(columns), str(MAX_RECORD_BYTES)) as (stream, failure):
        # A process that is killed may cut its last line.
        whole = (json.loads(line) for line in stream if line.endswith(b"\n"))
        yield next(whole, {}), whole, failure


def _split(path: str) -> tuple[str, str | None, str]:
    """Name, configuration and split of a data set."""
    name, *rest = path.removeprefix(PREFIX).split(":")
    if len(rest) > 2:
        raise InputError(f"{path}: give hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT")
    *config, split = rest or ["train"]
    return name, config[0] if config else None, split


def _unreachable(path: str, error: object) -> InputError:
    reason = " ".join(str(error).split())
    if "load_from_disk" in reason:
        return InputError(f"{path}: a saved data set; give its folder without {PREFIX}")
    return InputError(f"{path}: cannot be opened ({reason}); check its name, split and your access")
