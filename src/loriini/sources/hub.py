"""Data sets by name, streamed by the datasets library: `hf:NAME`, `hf:NAME:SPLIT`, `hf:NAME:CONFIG:SPLIT`."""

import re
import threading
from typing import Any

from loriini.errors import InputError
from loriini.sources.optional import import_optional
from loriini.sources.records import BadRecord, Fields, Records

PREFIX = "hf:"


def is_data_set(path: str) -> bool:
    """Whether a path names a data set. `hf://datasets/ORG/NAME/FOLDER` are files."""
    return path.startswith(PREFIX) and not path.startswith("hf://")


def plain_name(path: str) -> str:
    """`hf:ORG/NAME` for `hf://datasets/ORG/NAME`; any other path unchanged."""
    whole = re.fullmatch(r"hf://datasets/([^/]+/[^/]+)/?", path)
    return PREFIX + whole[1] if whole else path


def shard_count(path: str) -> int:
    """The number of shards of a data set; InputError when it cannot be opened."""
    return int(_open(path).num_shards)


def read_shard(path: str, shard: tuple[int, int], fields: Fields) -> Records:
    """The rows of shard i of n of a data set, only the columns needed where they are known."""
    index, count = shard
    rows = _open(path).shard(num_shards=count, index=index)
    if rows.column_names:
        rows = rows.select_columns(fields.among(rows.column_names))
    try:
        yield from enumerate(rows, 1)
    except Exception as error:  # of the network, of any file format, of the data set's own code
        raise BadRecord("unreadable data set", error, fix="data set") from error


def revision(path: str) -> str:
    """The commit of a data set on the hub."""
    try:
        return str(import_optional("huggingface_hub", path).HfApi().dataset_info(_split(path)[0]).sha)
    except Exception as error:
        raise _unreachable(path, error) from None


def _open(path: str) -> Any:
    name, config, split = _split(path)
    load = import_optional("datasets", path).load_dataset
    # tqdm's bars are not shown, but a terminated worker would leave its lock across processes behind.
    import_optional("tqdm", path).tqdm.set_lock(threading.RLock())
    try:
        return load(name, config, split=split, streaming=True)
    except Exception as error:
        raise _unreachable(path, error) from None


def _split(path: str) -> tuple[str, str | None, str]:
    """Name, configuration and split of a data set."""
    name, *rest = path.removeprefix(PREFIX).split(":")
    *config, split = rest or ["train"]
    return name, config[0] if config else None, split


def _unreachable(path: str, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(f"{path}: cannot be opened ({reason}); check its name, split and your access")
