"""The file in a job's folder that says which job it holds."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loriini.common.atomic import is_unused, write_json
from loriini.common.errors import InputError
from loriini.common.json_file import read_object


def claim_folder(path: Path, settings: Mapping[str, Any], begun: bool, command: str) -> None:
    """Record in the file `path` the settings of the job in its folder; the folder must be locked.

    `begun` is whether the folder holds work of its recorded job. InputError if another job has begun, or the
    folder holds other files.
    """
    settings = json.loads(json.dumps(settings))  # as they are read again: tuples are lists
    if path.exists():
        found = read_object(path, "choose another --out")
        changed = sorted(name for name, value in settings.items() if found.get(name) != value)
        if not changed:
            return
        if begun:
            raise InputError(
                f"{path}: this folder holds a job with other {', '.join(changed)}; choose another --out"
            )
    elif not is_unused(path.parent):
        raise InputError(f"{path.parent}: exists and is no folder of `{command}`; choose another --out")
    write_json(path, settings)
