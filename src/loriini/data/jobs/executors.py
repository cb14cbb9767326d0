"""Executors by name: processes of this machine, or a cluster through datatrove."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal

from loriini.common.errors import InputError
from loriini.data.jobs.processes import ProcessExecutor
from loriini.data.jobs.tasks import Executor

ExecutorName = Literal["local", "slurm", "ray"]
PACKAGES = {"slurm": ("datatrove",), "ray": ("datatrove", "ray")}
EXTRAS = {"slurm": "scale", "ray": "ray"}


def make_executor(name: ExecutorName = "local", workers: int = 1, options: Sequence[str] = ()) -> Executor:
    """The executor `name`, which runs `workers` tasks at once; `options` are `KEY=VALUE` for a cluster's.

    Raises InputError for an unknown option, and if the extra that the executor needs is not installed.
    """
    if name == "local":
        if options:
            raise InputError(
                f"executor options {' '.join(options)}: the local executor has none; remove them"
            )
        return ProcessExecutor(workers)
    for package in PACKAGES[name]:
        if not find_spec(package):
            raise InputError(f"executor {name!r} needs {package}; run: pip install 'loriini[{EXTRAS[name]}]'")
    from loriini.data.jobs.cluster import cluster_executor

    return cluster_executor(name, workers, options)
