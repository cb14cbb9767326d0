"""Several processes at once, each a rank of one job: a function runs in all and returns to the test."""

import os
import socket
import traceback
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["loriini.launch", "runs"])  # torch is imported once for all jobs


def job(world_size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What each of `world_size` fresh processes returns from `function`, a module's.

    They find torchrun's environment; whether they speak to each other is up to the function.
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
            ready = wait([pipe for pipe, rank in pipes.items() if rank not in returned], timeout=120)
            assert ready, f"ranks {sorted(set(range(world_size)) - returned.keys())} say nothing"
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
    warnings.simplefilter("error")
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1")
    try:
        pipe.send((function(*arguments), None))
    except BaseException:
        pipe.send((None, traceback.format_exc()))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
