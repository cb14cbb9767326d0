"""Where tasks are done: on this machine's processes, or on a cluster by datatrove's executors."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal, get_args

from loriini.errors import InputError
from loriini.jobs.processes import Processes
from loriini.jobs.tasks import Executor

Where = Literal["local", "slurm", "ray"]
PLACES = get_args(Where)
PACKAGES = {"slurm": ("datatrove",), "ray": ("datatrove", "ray")}
EXTRAS = {"slurm": "scale", "ray": "ray"}


def executor(where: Where = "local", workers: int = 1, options: Sequence[str] = ()) -> Executor:
    """What does tasks, so many at once; `options` are `KEY=VALUE`, of the cluster's executor.

    Raises InputError for an unknown place or option, and when the extra that it needs is not installed.
    """
    if where not in PLACES:
        raise InputError(f"executor {where!r} is unknown; choose one of: {', '.join(PLACES)}")
    if where == "local":
        if options:
            raise InputError(
                f"executor options {' '.join(options)}: the local executor has none; remove them"
            )
        return Processes(workers)
    for package in PACKAGES[where]:
        if not find_spec(package):
            raise InputError(
                f"executor {where!r} needs {package}; run: pip install 'loriini[{EXTRAS[where]}]'"
            )
    from loriini.jobs import cluster

    return cluster.slurm(workers, options) if where == "slurm" else cluster.ray(workers, options)
