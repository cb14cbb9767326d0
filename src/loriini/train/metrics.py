"""One JSON object a step in `metrics.jsonl`, and what it says of the experts."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from loriini.routing import Routing
from loriini.routing.losses import active_experts, gate_entropy, mean_gates

METRICS = "metrics.jsonl"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Every step's object; a last line cut short by a kill is left out."""
    return list(_whole_lines(path)) if path.exists() else []


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return


def rewind(path: Path, step: int) -> None:
    """Drop the steps after `step`, which a resumed run makes again, so that none is there twice."""
    kept = [m for m in read_metrics(path) if m["step"] <= step]
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join(json.dumps(m) + "\n" for m in kept))
    os.replace(temporary, path)


@torch.no_grad()
def expert_metrics(routings: tuple[Routing, ...]) -> dict[str, Any]:
    """Per layer: mean gate of every expert, gate entropy in nats, and the experts active (weight > 2/E).

    `active` is a bit mask, bit i for expert i: utilisation over any window of steps is their union.
    """
    if routings[0].gates.shape[-1] == 1:
        return {}
    masks = [active_experts(r).tolist() for r in routings]
    return {
        "mean_gates": [[round(g, 4) for g in mean_gates(r).tolist()] for r in routings],
        "gate_entropy": [round(gate_entropy(r).item(), 4) for r in routings],
        "active": [sum(1 << i for i, active in enumerate(mask) if active) for mask in masks],
    }
