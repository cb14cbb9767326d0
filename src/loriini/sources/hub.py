"""Data sets by name, streamed by the datasets library: `hf:NAME`, `hf:NAME:SPLIT`, `hf:NAME:CONFIG:SPLIT`."""

import re
import threading
from typing import Any

from loriini.errors import InputError
from loriini.sources.fields import BadRecord, Fields, import_optional
from loriini.sources.records import Records

PREFIX = "hf:"


def is_data_set(path: str) -> bool:
    """Whether a path names a data set, and not files: `hf://datasets/ORG/NAME/FOLDER` are files."""
    return path.startswith(PREFIX) and not path.startswith("hf://")


def plain_name(path: str) -> str:
    """`hf:ORG/NAME` for `hf://datasets/ORG/NAME`; any other path as it is."""
    whole = re.fullmatch(r"hf://datasets/([^/]+/[^/]+)/?", path)
    return PREFIX + whole[1] if whole else path


def shard_count(path: str) -> int:
    """Into how many shards a data set can be cut; InputError when it cannot be opened."""
    return int(_open(path).num_shards)


def shard_records(path: str, shard: tuple[int, int], fields: Fields) -> Records:
    """The rows of shard i of n of a data set, only the columns needed where these are known."""
    index, count = shard
    rows = _open(path).shard(num_shards=count, index=index)
    if rows.column_names:
        rows = rows.select_columns(fields.among(rows.column_names))
    try:
        yield from enumerate(rows, 1)
    except Exception as error:  # of the network, of any file format, of the data set's own
        raise BadRecord("unreadable data set", error, mend="data set") from error


def revision(path: str) -> str:
    """What changes when a data set on the hub does: its commit."""
    try:
        return str(import_optional("huggingface_hub", path).HfApi().dataset_info(_split(path)[0]).sha)
    except Exception as error:
        raise _unreachable(path, error) from None


def _open(path: str) -> Any:
    name, config, split = _split(path)
    load = import_optional("datasets", path).load_dataset
    # Its bars never show, but their lock across processes would be left behind by a worker that is ended.
    import_optional("tqdm", path).tqdm.set_lock(threading.RLock())
    try:
        return load(name, config, split=split, streaming=True)
    except Exception as error:
        raise _unreachable(path, error) from None


def _split(path: str) -> tuple[str, str | None, str]:
    name, *rest = path.removeprefix(PREFIX).split(":")
    *config, split = rest or ["train"]
    return name, config[0] if config else None, split


def _unreachable(path: str, error: Exception) -> InputError:
    said = " ".join(str(error).split())
    return InputError(f"{path}: cannot be opened ({said}); check its name, split and your access")
