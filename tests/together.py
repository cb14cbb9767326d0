"""Several processes at once, each a rank of one job: functions run in all and return to the test."""

import os
import random
import signal
import socket
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

CONTEXT = get_context("forkserver")
PRELOADED = ["loriini.train.launch", "loriini.compare.job", "sklearn.feature_extraction.text", "runs"]
CONTEXT.set_forkserver_preload(PRELOADED)  # imported once for all jobs
SILENCE = 600
"""Seconds after which ranks that return nothing are given up."""


def job(world_size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What each of `world_size` fresh processes returns from a module's function.

    They have torchrun's environment; whether they communicate is up to the function.
    """
    port = _free_port()
    pipes, ranks = {}, []
    for rank in range(world_size):
        here, there = CONTEXT.Pipe(duplex=False)
        ranks.append(CONTEXT.Process(target=_rank, args=(there, rank, world_size, port, function, arguments)))
        ranks[-1].start()
        there.close()
        pipes[here] = rank
    returned: dict[int, Any] = {}
    try:
        while len(returned) < world_size:
            ready = wait([pipe for pipe, rank in pipes.items() if rank not in returned], timeout=SILENCE)
            assert ready, f"ranks {sorted(set(range(world_size)) - returned.keys())} return nothing"
            for pipe in ready:
                assert isinstance(pipe, Connection)
                result, error = pipe.recv()
                assert error is None, f"rank {pipes[pipe]}: {error}"
                returned[pipes[pipe]] = result
    finally:
        for process in ranks:
            if len(returned) < world_size:
                process.kill()
            process.join()
    return [returned[rank] for rank in range(world_size)]


def in_one_group(tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What each (function, *arguments) returns; all of them run in one process group."""
    from loriini.parallel.mesh import process_group

    with process_group():
        return [function(*arguments) for function, *arguments in tasks]


def _rank(
    pipe: Connection,
    rank: int,
    world_size: int,
    port: int,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    import torch

    torch.set_num_threads(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a comparison may have started the fork server
    warnings.simplefilter("error")
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1")
    try:
        pipe.send((function(*arguments), None))
    except BaseException:
        pipe.send((None, traceback.format_exc()))


def _free_port() -> int:
    """A free port outside the range that the system itself hands out."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
