"""Bytes that processes of this machine send in a training step, measured and by the formula.

`python -m loriini.papers.reproduce.experiments.sending FOLDER RANK` is one of the processes.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist

from loriini.common.atomic import write_json
from loriini.compare.running import failure
from loriini.estimate.communication import Communication, RankStep, expert_wise, fsdp
from loriini.model import LoriiniConfig
from loriini.papers.published.items import ITEMS
from loriini.papers.reproduce.scales import Scale, scaled_run
from loriini.parallel.counting import SentBytes
from loriini.parallel.mesh import Parallel, ParallelConfig, join_mesh
from loriini.parallel.sharding import build_model

RANKS, VOCABULARY = 2, 256
SIZE = Scale("sent", {"0.3b": (64, 2, 2)}, length=64, segment_length=16)
"""A small scale, since the formula is compared with exact counts, which need no large models."""
STEP = RankStep(instances=1, length=SIZE.length, micro_batches=1, itemsize=4)
ZERO, EXPERT_WISE = "data parallelism (ZeRO)", "expert-wise"
COUNTED = ("_allgather_base_", "_reduce_scatter_base_")
"""The collectives that are counted; means of a few statistics over processes are not."""
POLL_SECONDS = 0.1
SECONDS = 300
"""Timeout of the processes."""
BY_FORMULA = "bytes are those of the formula alone"


def sent_here() -> dict[str, Any]:
    """`sent`: parallelism → model → bytes sent and by the formula; or `remark`: why nothing was sent."""
    with TemporaryDirectory() as folder:
        logs = [Path(folder, f"{rank}.log") for rank in range(RANKS)]
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank, log in enumerate(logs):
                processes.append(_start(Path(folder), rank, log))
            failed = wait_for_all(processes, SECONDS)
        except (OSError, TimeoutError):
            return {"remark": f"{BY_FORMULA}: processes cannot be started here, or do not end in {SECONDS} s"}
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if failed is not None:
            reason = failure(processes[failed].returncode, logs[failed])
            return {"remark": f"{BY_FORMULA}: processes do not reach each other here ({reason})"}
        return {"sent": json.loads(Path(folder, "sent.json").read_text())}


def wait_for_all(processes: Sequence["subprocess.Popen[bytes]"], seconds: float) -> int | None:
    """Wait until all have ended well or one has not; its index. TimeoutError if they take longer.

    The others may wait for one that failed: they are left running.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        codes = [process.poll() for process in processes]
        failed = next((i for i, code in enumerate(codes) if code), None)
        if failed is not None or None not in codes:
            return failed
        time.sleep(POLL_SECONDS)
    raise TimeoutError


def _start(folder: Path, rank: int, log: Path) -> "subprocess.Popen[bytes]":
    with open(log, "wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder), str(rank)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        )


def send(folder: Path, rank: int) -> None:
    """Take a step of every model in either parallelism, as one of RANKS processes that meet in `folder`."""
    store = dist.FileStore(str(folder / "store"), RANKS)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    meshes = {ZERO: join_mesh(ParallelConfig()), EXPERT_WISE: join_mesh(ParallelConfig(experts=RANKS))}
    found = {
        name: {
            row: {"sent": sent_in_a_step(config, mesh), "formula": formula(config, name).total}
            for row, config in configurations().items()
            if name == ZERO or config.is_mixture
        }
        for name, mesh in meshes.items()
    }
    if rank == 0:
        write_json(folder / "sent.json", found)
    dist.destroy_process_group()


def configurations() -> Mapping[str, LoriiniConfig]:
    """The models of Lory's table 3, made small."""
    runs = {row: scaled_run(paper, SIZE) for row, paper in ITEMS["lory-table3"].runs.items()}
    return {row: run.config(VOCABULARY) for row, run in runs.items()}


def formula(config: LoriiniConfig, parallelism: str) -> Communication:
    """The estimate for a step."""
    if parallelism == ZERO:
        return fsdp(config, STEP, RANKS, RANKS)
    return expert_wise(config, STEP, RANKS, RANKS, RANKS)


def sent_in_a_step(config: LoriiniConfig, parallel: Parallel) -> int:
    """Bytes that this process sends in a forward and a backward pass."""
    model = build_model(config, parallel, "fp32")
    ids_BL = torch.zeros(STEP.instances, STEP.length, dtype=torch.long)
    with SentBytes() as counted:
        (model(ids_BL, labels=ids_BL, average=parallel.mean).loss / parallel.world_size).backward()
    return sum(counted.sent[kind] for kind in COUNTED)


if __name__ == "__main__":
    send(Path(sys.argv[1]), int(sys.argv[2]))
