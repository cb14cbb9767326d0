"""One JSON object a step in `metrics.jsonl`, and what it says of the experts."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loriini.routing import Routing
from loriini.routing.losses import active_experts, choices, gate_entropy, mean_gates

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


@dataclass(frozen=True)
class ExpertUse:
    """How a micro-batch used its experts: gate entropy is (layers,), the rest (layers, E)."""

    choices: Tensor
    mean_gates: Tensor
    active: Tensor
    gate_entropy: Tensor


@torch.no_grad()
def expert_use(routings: tuple[Routing, ...]) -> ExpertUse:
    """The statistics of every layer's routing."""
    return ExpertUse(
        torch.stack([choices(r) for r in routings]),
        torch.stack([mean_gates(r) for r in routings]),
        torch.stack([active_experts(r) for r in routings]),
        torch.stack([gate_entropy(r) for r in routings]),
    )


def expert_metrics(uses: Sequence[ExpertUse]) -> dict[str, Any]:
    """A step's micro-batches together, per layer: mean gates, gate entropy in nats, and active experts.

    `active` is a bit mask, bit i for expert i, of those whose weight passed 2/E for any unit: utilisation
    over a window of steps is their union. Nothing for a dense model.
    """
    if uses[0].mean_gates.shape[-1] == 1:
        return {}
    gates = torch.stack([use.mean_gates for use in uses]).mean(0)
    entropy = torch.stack([use.gate_entropy for use in uses]).mean(0)
    masks = torch.stack([use.active for use in uses]).any(0)
    return {
        "mean_gates": [[round(g, 4) for g in layer] for layer in gates.tolist()],
        "gate_entropy": [round(e, 4) for e in entropy.tolist()],
        "active": [sum(1 << i for i, on in enumerate(layer) if on) for layer in masks.tolist()],
    }
