"""`metrics.jsonl`, one JSON object a step, and the statistics of experts in it."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loriini.atomic import write_text
from loriini.parallel.mesh import Parallel
from loriini.routing import Routing, RoutingConfig, losses

METRICS = "metrics.jsonl"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Every step's object, without a last line cut short by a kill; empty if there is no file."""
    return list(_whole_lines(path)) if path.exists() else []


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return


def rewind(path: Path, step: int) -> None:
    """Drop the steps after `step`, which a resumed run will write again."""
    kept = [m for m in read_metrics(path) if m["step"] <= step]
    write_text(path, "".join(json.dumps(m) + "\n" for m in kept))


@dataclass(frozen=True)
class ExpertUse:
    """How some text used its experts, as sums, which add up over micro-batches and ranks.

    `units` (layers,) counts the units that hold tokens. The other fields are sums over them: `gate_entropy`
    and `confidence_entropy` (layers,), `choices`, `gates` and `logits` (layers, E). `above` (layers, E)
    counts the micro-batches in which some unit's gate was above 2/E.
    """

    units: Tensor
    choices: Tensor
    gates: Tensor
    logits: Tensor
    above: Tensor
    gate_entropy: Tensor
    confidence_entropy: Tensor


@torch.no_grad()
def expert_use(routings: tuple[Routing, ...]) -> ExpertUse:
    """The sums over the units of one call, for every layer."""

    def layers(statistic: Callable[[Routing], Tensor]) -> Tensor:
        return torch.stack([statistic(r) for r in routings])

    def summed(mean: Callable[[Routing], Tensor]) -> Tensor:
        return torch.stack([losses.units(r) * mean(r) for r in routings])

    return ExpertUse(
        units=layers(losses.units),
        choices=layers(losses.choices),
        gates=summed(losses.mean_gates),
        logits=summed(losses.mean_logits),
        above=layers(losses.active_experts).float(),
        gate_entropy=summed(losses.gate_entropy),
        confidence_entropy=summed(losses.confidence_entropy),
    )


def total(uses: Sequence[ExpertUse]) -> ExpertUse:
    """The sum over micro-batches."""
    return ExpertUse(*(torch.stack(parts).sum(0) for parts in zip(*map(_tensors, uses), strict=True)))


def of_all(use: ExpertUse, parallel: Parallel) -> ExpertUse:
    """The sum over processes."""
    return ExpertUse(*map(parallel.sum, _tensors(use)))


def _tensors(use: ExpertUse) -> list[Tensor]:
    return [getattr(use, field.name) for field in fields(use)]


def expert_metrics(use: ExpertUse, routing: RoutingConfig, per_expert: bool = True) -> dict[str, Any]:
    """A step's statistics, per layer; empty for a dense model. Entropies are in nats.

    - `gate_entropy`, `confidence_entropy`: means over units of the entropy of their gates, and of the
      softmax of their logits.
    - `load_entropy`: entropy of the load, log E when it is even.
    - `active`: a bit mask of the active experts, bit i for expert i; over a window of steps, utilisation is
      the union of its masks. An expert is active if a unit chose it; in a design that gives every unit
      every expert, if a unit's gate is above 2/E (Lory appendix G.1).

    With `per_expert`, also per expert: `load`, its share of the units' choices (of the sum of their gates,
    where every unit gets every expert); `mean_gates`; and `activation_norms` where experts score themselves.
    """
    if use.gates.shape[-1] == 1:
        return {}
    soft = routing.selection == "all"
    load = losses.shares(use.gates if soft else use.choices)
    units = use.units[:, None]
    measured = {
        "gate_entropy": use.gate_entropy / use.units,
        "confidence_entropy": use.confidence_entropy / use.units,
        "load_entropy": losses.entropy(load),
    }
    if per_expert:
        measured |= {"load": load, "mean_gates": use.gates / units}
    if per_expert and routing.scorer == "activation_norm":
        measured["activation_norms"] = use.logits / units
    active = use.above if soft else use.choices
    masks = [sum(1 << i for i, on in enumerate(layer) if on) for layer in active.tolist()]
    return {"active": masks, **{name: _rounded(values.tolist()) for name, values in measured.items()}}


def _rounded(values: Any) -> Any:
    return [_rounded(v) for v in values] if isinstance(values, list) else round(values, 4)
