"""Where tasks are done: on this machine's processes, or on a cluster by datatrove's executors."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal, get_args

from loriini.errors import InputError
from loriini.jobs.processes import ProcessExecutor
from loriini.jobs.tasks import Executor

ExecutorName = Literal["local", "slurm", "ray"]
EXECUTORS = get_args(ExecutorName)
PACKAGES = {"slurm": ("datatrove",), "ray": ("datatrove", "ray")}
EXTRAS = {"slurm": "scale", "ray": "ray"}


def make_executor(where: ExecutorName = "local", workers: int = 1, options: Sequence[str] = ()) -> Executor:
    """What does tasks, so many at once; `options` are `KEY=VALUE`, of the cluster's executor.

    Raises InputError for an unknown place or option, and when the extra that it needs is not installed.
    """
    if where not in EXECUTORS:
        raise InputError(f"executor {where!r} is unknown; choose one of: {', '.join(EXECUTORS)}")
    if where == "local":
        if options:
            raise InputError(
                f"executor options {' '.join(options)}: the local executor has none; remove them"
            )
        return ProcessExecutor(workers)
    for package in PACKAGES[where]:
        if not find_spec(package):
            raise InputError(
                f"executor {where!r} needs {package}; run: pip install 'loriini[{EXTRAS[where]}]'"
            )
    from loriini.jobs import cluster

    return (
        cluster.slurm_executor(workers, options)
        if where == "slurm"
        else cluster.ray_executor(workers, options)
    )
