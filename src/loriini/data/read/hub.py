"""Data sets by name, streamed by the datasets library: `hf:NAME`, `hf:NAME:SPLIT`, `hf:NAME:CONFIG:SPLIT`."""

from typing import Any

from loriini.common.errors import InputError
from loriini.data.read.records import BadRecord, Fields, Records
from loriini.data.read.web import import_optional

PREFIX = "hf:"


def is_data_set(path: str) -> bool:
    """Whether a path names a data set. `hf://datasets/ORG/NAME/FOLDER` are files."""
    return path.startswith(PREFIX) and not path.startswith("hf://")


def shard_count(path: str, commit: str) -> int:
    """The number of shards of a data set; InputError when it cannot be opened."""
    return int(_open(path, commit).num_shards)


def read_shard(path: str, commit: str, shard: tuple[int, int], fields: Fields) -> Records:
    """The rows of shard i of n of a data set, only the columns needed where they are known."""
    index, count = shard
    rows = _open(path, commit).shard(num_shards=count, index=index)
    if rows.column_names:
        rows = rows.select_columns(fields.columns_of(rows.column_names))
    try:
        yield from enumerate(rows, 1)
    except Exception as error:  # of the network, or of any file format
        raise BadRecord("unreadable data set", error, fix="data set") from None


def revision(path: str) -> str:
    """The commit of a data set on the Hub; InputError when it cannot be reached."""
    from huggingface_hub import HfApi

    try:
        return str(HfApi().dataset_info(_split(path)[0]).sha)
    except Exception as error:
        raise _unreachable(path, error) from None


def _open(path: str, commit: str) -> Any:
    datasets = import_optional("datasets", path)
    name, config, split = _split(path)
    try:
        return datasets.load_dataset(name, config, split=split, revision=commit, streaming=True)
    except Exception as error:
        raise _unreachable(path, error) from None


def _split(path: str) -> tuple[str, str | None, str]:
    """Name, configuration and split of a data set."""
    name, *rest = path.removeprefix(PREFIX).split(":")
    if len(rest) > 2:
        raise InputError(f"{path}: give hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT")
    *config, split = rest or ["train"]
    return name, config[0] if config else None, split


def _unreachable(path: str, error: object) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(f"{path}: cannot be opened ({reason}); check its name, split and your access")
