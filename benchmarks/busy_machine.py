"""Training steps beside other busy processes, by threads and by how OpenMP's threads wait for each other.

python benchmarks/busy_machine.py --results benchmarks/results/busy_machine.json
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from measuring import write_results

WAITING = {
    "default": {},
    "active": {"OMP_WAIT_POLICY": "active"},
    "short": {"GOMP_SPINCOUNT": "10000"},
    "passive": {"OMP_WAIT_POLICY": "passive"},
}
CASES = [(1, "default"), *((2, waiting) for waiting in WAITING)]
SIZES = {"small": (64, 2, 2), "medium": (128, 4, 2)}
"""Hidden size, layers and instances of a step of the models that are trained."""
SPIN = "while True: pass"
IDLE = 0.5
"""Greatest load of a machine that is called idle."""


def measure(seconds: float) -> dict[str, Any]:
    """Median seconds of a training step of each size, in this process."""
    import torch

    from loriini.model import LoriiniConfig, LoriiniForCausalLM

    torch.manual_seed(0)
    found = {}
    for name, (hidden, layers, instances) in SIZES.items():
        config = LoriiniConfig(
            vocab_size=512,
            hidden_size=hidden,
            intermediate_size=4 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            num_experts=4,
        )
        model = LoriiniForCausalLM(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        ids_BL = torch.randint(512, (instances, 512))
        took: list[float] = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(took) < 3:
            start = time.perf_counter()
            model(ids_BL, labels=ids_BL).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            took.append(time.perf_counter() - start)
        found[name] = median(took[1:])
    return found


def measured_beside(others: int, threads: int, waiting: str, seconds: float) -> dict[str, Any]:
    """The same in a fresh process, while `others` processes spin."""
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(others)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), **WAITING[waiting]}
    command = [sys.executable, __file__, "--child", "--seconds", str(seconds)]
    try:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    return {"others": others, "threads": threads, "waiting": waiting, **json.loads(done.stdout)}


def summary(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A case's median over rounds, and its least and greatest seconds."""
    found = {name: [row[name] for row in rounds] for name in SIZES}
    medians = {name: round(median(seconds), 4) for name, seconds in found.items()}
    ranges = {f"{name}_range": [round(min(s), 4), round(max(s), 4)] for name, s in found.items()}
    return {**rounds[0], **medians, **ranges}


def main() -> None:
    """Measure every case in turn, several times, and write medians and ranges."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", action="store_true")
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measure(given.seconds)))
        return
    if (load := os.getloadavg()[0]) > IDLE:
        parser.error(f"the machine is busy already (load {load:.2f}); stop what runs, and wait a minute")
    cases = [(others, *case) for others in (0, 2) for case in CASES]
    rounds = [[measured_beside(*case, given.seconds) for case in cases] for _ in range(given.rounds)]
    rows = [summary(of_case) for of_case in zip(*rounds, strict=True)]
    print("\n".join(map(json.dumps, rows)))
    if given.results:
        write_results(given.results, unit="seconds a step", rounds=given.rounds, rows=rows)


if __name__ == "__main__":
    main()
