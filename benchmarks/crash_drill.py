"""Kill one of four processes under torchrun, again and again; the job must end as if nobody had.

Trains a tiny run in four processes with restarts allowed, sends SIGKILL to one of them whenever some more
steps are done, and compares losses and final weights with those of an undisturbed job of the same mesh.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from loriini.train.records.metrics import METRICS, read_records
from measuring import write_results

RANKS, STEPS, EVERY = 4, 60, 5
RESTARTS = 10
"""More than the kills: on a loaded machine a worker may fail by itself."""
RESULT = Path(__file__).parent / "results" / "crash_drill.json"


def command(out: Path, experts: int) -> list[str]:
    """The job as one would start it."""
    launcher = [
        "--standalone",
        f"--nproc-per-node={RANKS}",
        f"--max-restarts={RESTARTS}",
        "--monitor-interval=0.2",
    ]
    run = ["--steps", str(STEPS), "--checkpoint.every", str(EVERY), "--precision", "fp32"]
    mesh = ["--parallel.experts", str(experts)]
    return [
        *(sys.executable, "-m", "torch.distributed.run", *launcher),
        *("-m", "loriini", "train", "tiny-lory", "--out", str(out), *run, *mesh),
    ]


def workers(launcher: int) -> dict[int, int]:
    """The processes that torchrun has started and that are alive, by rank."""
    found: dict[int, int] = {}
    for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:  # gone in the meantime
            continue
        found |= {int(v.removeprefix(b"RANK=")): int(pid) for v in variables if v.startswith(b"RANK=")}
    return found


def steps_done(out: Path) -> int:
    return len(read_records(out / METRICS))


def drill(out: Path, kills: Sequence[tuple[int, int]], experts: int) -> list[dict[str, Any]]:
    """Run the job; for every (step, rank) kill that rank once the step is done. What was done, and when."""
    started, events = time.monotonic(), []

    def note(**what: Any) -> None:
        events.append({"seconds": round(time.monotonic() - started, 1), **what})

    with (
        open(out.with_suffix(".log"), "w") as log,
        subprocess.Popen(command(out, experts), stdout=log, stderr=log) as job,
    ):
        for step, rank in kills:
            while job.poll() is None and (steps_done(out) < step or rank not in workers(job.pid)):
                time.sleep(0.05)
            if job.poll() is not None:
                break
            victim, done = workers(job.pid)[rank], steps_done(out)
            os.kill(victim, signal.SIGKILL)
            note(killed_rank=rank, after_step=done)
            while job.poll() is None and workers(job.pid).get(rank, victim) == victim:
                time.sleep(0.05)
            note(started_again=job.poll() is None)
        note(exit_code=job.wait(), steps=steps_done(out))
    if job.returncode:
        sys.exit(f"{events}\n{out.with_suffix('.log').read_text()[-20_000:]}")
    return events


def compare(out: Path, expected: Path) -> dict[str, Any]:
    """How far two runs are apart: 0 and true where they are the same to the bit."""
    losses, wanted = ([m["loss"] for m in read_records(run / METRICS)] for run in (out, expected))
    weights, right = (load_file(run / "model" / "model.safetensors") for run in (out, expected))
    return {
        "steps": len(losses),
        "steps_expected": len(wanted),
        "largest_loss_difference": max(abs(a - b) for a, b in zip(losses, wanted, strict=True)),
        "weights_bit_identical": weights.keys() == right.keys()
        and all(torch.equal(weights[name], weight) for name, weight in right.items()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experts", type=int, default=2, help="expert-wise parallelism's degree")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    kills = [(12, 2), (27, 0), (43, 3)]
    with tempfile.TemporaryDirectory() as folder:
        whole, crashed = Path(folder) / "undisturbed", Path(folder) / "killed"
        undisturbed = drill(whole, [], arguments.experts)
        events = drill(crashed, kills, arguments.experts)
        result = {
            "command": " ".join(["torchrun", *command(Path("RUN"), arguments.experts)[3:]]),
            "checkpoint_every": EVERY,
            "undisturbed": undisturbed,
            "events": events,
            "comparison": compare(crashed, whole),
        }
    write_results(arguments.out, **result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
