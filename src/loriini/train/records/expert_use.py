"""How a step used the experts: sums over units, and the statistics of them that `metrics.jsonl` records."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loriini.routing import Routing, RoutingConfig, losses, stats
from loriini.train.run_progress import Totals


class ExpertUse(NamedTuple):
    """How some text used the experts, as sums over units, so that micro-batches and ranks add up."""

    units: Tensor
    """Units that hold tokens, (layers,)."""
    choices: Tensor
    """Units that chose each expert, (layers, E)."""
    gates: Tensor
    """Sum of gates, (layers, E)."""
    logits: Tensor
    """Sum of logits, (layers, E)."""
    active: Tensor
    """Micro-batches in which some unit's gate was above 2/E, (layers, E)."""
    gate_entropy: Tensor
    """Sum of the entropies of gates, (layers,)."""
    confidence_entropy: Tensor
    """Sum of the entropies of the softmax of logits, (layers,)."""


@torch.no_grad()
def expert_use(routings: tuple[Routing, ...]) -> ExpertUse:
    """The sums over the routing decisions of one micro-batch, by layer; zeros for a dense model."""
    if routings[0].gates.shape[-1] == 1:  # nothing is recorded of a dense model
        none_L = torch.zeros(len(routings), device=routings[0].gates.device)
        none_LE = none_L[:, None]
        return ExpertUse(none_L, none_LE, none_LE, none_LE, none_LE, none_L, none_L)

    layers = stats.stack_layers(routings)
    units = stats.count_units(layers)
    return ExpertUse(
        units=units.expand(len(routings)),
        choices=stats.choices(layers),
        gates=stats.sum_over_units(layers.gates, layers),
        logits=stats.sum_over_units(layers.logits, layers),
        active=stats.active_experts(layers).float(),
        gate_entropy=units * stats.gate_entropy(layers),
        confidence_entropy=units * losses.confidence_entropy(layers),
    )


def add_up(uses: Sequence[ExpertUse]) -> ExpertUse:
    """The sums over several micro-batches."""
    return ExpertUse(*(torch.stack(column).sum(0) for column in zip(*uses, strict=True)))


def received(use: ExpertUse, design: RoutingConfig) -> Tensor:
    """What each expert got, (layers, E): choices, or gates where every unit gets every expert."""
    return use.gates if design.soft else use.choices


def add_totals(before: Totals, use: ExpertUse, design: RoutingConfig) -> Totals:
    """What each expert `received` in a step, plus `before` if its shape fits; empty for a dense model."""
    added = received(use, design).double()
    if added.shape[-1] == 1:
        return ()
    earlier = torch.tensor(before, dtype=torch.float64)
    both = earlier + added if earlier.shape == added.shape else added
    return tuple(map(tuple, both.tolist()))


def expert_metrics(use: ExpertUse, design: RoutingConfig, since_record: Totals = ()) -> dict[str, Any]:
    """A step's statistics, per layer; empty for a dense model. Entropies are in nats.

    - `gate_entropy`, `confidence_entropy`: means over units of the entropy of their gates, and of the
      softmax of their logits.
    - `load_entropy`: entropy of the load, log E when it is even.
    - `active`: a bit mask of the active experts, bit i for expert i; over a window of steps, utilisation is
      the union of its masks. An expert is active if a unit chose it; in a design that gives every unit
      every expert, if a unit's gate is above 2/E (Lory appendix G.1).

    `since_record` is the sum of `received` since the last per-expert record, empty if none is due. With it,
    there are also `choices`, its sum over experts, and per expert `load`, its share of that sum (few units
    choose in one step); and of this step `mean_gates`, and `activation_norms` if experts score themselves.
    """
    if use.gates.shape[-1] == 1:
        return {}
    units = use.units[:, None]
    measured = {
        "gate_entropy": use.gate_entropy / use.units,
        "confidence_entropy": use.confidence_entropy / use.units,
        "load_entropy": stats.entropy(stats.shares(received(use, design))),
    }
    if since_record:
        totals_LE = torch.tensor(since_record, dtype=torch.float64)
        measured |= {"load": stats.shares(totals_LE), "choices": totals_LE.sum(-1)}
        measured["mean_gates"] = use.gates / units
        if design.scorer == "activation_norm":
            measured["activation_norms"] = use.logits / units
    active = use.active if design.soft else use.choices
    masks = [sum(1 << i for i, on in enumerate(layer) if on) for layer in active.tolist()]
    return {"active": masks, **{name: _rounded(values.tolist()) for name, values in measured.items()}}


def _rounded(values: Any) -> Any:
    if isinstance(values, list):
        return [_rounded(v) for v in values]
    return round(values, 4) if math.isfinite(values) else None
