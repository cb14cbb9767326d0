"""`metrics.jsonl`, one JSON object a step, and its statistics of the experts."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loriini.atomic import write_text
from loriini.errors import InputError
from loriini.fields import Count, Positive, mismatch
from loriini.routing import Routing, RoutingConfig, losses, stats
from loriini.train.checkpoint_state import Amounts

METRICS = "metrics.jsonl"
Shape = tuple[int, ...]
KINDS: dict[str, Any] = {
    "tokens": Count,
    "experts": Count,
    "skipped": bool,
    "tokens_per_second": Positive,
}
"""The types of a step's fields that are read again."""
NUMBERS = ("loss", "auxiliary_loss", "gradient_norm", "learning_rate", "mfu", "peak_memory_bytes")
"""Fields that are numbers, or null where there is none."""
ARRAYS = frozenset(
    {"active", "load", "choices", "mean_gates", "activation_norms"}
    | {"load_entropy", "gate_entropy", "confidence_entropy"}
)
"""Fields of `expert_metrics`: each of one shape in all steps of a number of experts."""
FLOAT32 = torch.finfo(torch.float32).max
MOST_NATS = 100
"""No entropy is larger, whatever the number of experts."""


def read_metrics(path: Path, *required: str) -> list[dict[str, Any]]:
    """The metrics of every step, as `read_records` does. InputError for a field of another type, too."""
    steps = read_records(path, *required)
    shapes: dict[tuple[str, Any], Shape] = {}
    for number, step in enumerate(steps, 1):
        if problem := type_problem(step) or shape_problem(step, shapes):
            raise InputError(f"{path}: line {number} is no step's record ({problem}); remove that line")
    return steps


def read_records(path: Path, *required: str) -> list[dict[str, Any]]:
    """The JSON object of every step in a file of lines; a last line cut short by a kill is left out.

    InputError for any other line that is no such object, or lacks its step or a `required` field.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); remove it") from error
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):
                break
            record = None
        if problem := record_problem(record, required):
            raise InputError(f"{path}: line {number} is no step's record ({problem}); remove that line")
        records.append(record)
    return records


def record_problem(record: Any, required: Sequence[str]) -> str | None:
    """What is wrong with a step's record, None if nothing is."""
    if not isinstance(record, dict):
        return "no JSON object"
    if absent := [name for name in ("step", *required) if name not in record]:
        return f"without {absent[0]}"
    expected = mismatch(record["step"], Count)
    return f"step is not {expected}" if expected else None


def type_problem(step: dict[str, Any]) -> str | None:
    """Which of a step's metrics has another type than those that are recorded."""
    for name in KINDS.keys() & step.keys():
        if expected := mismatch(step[name], KINDS[name]):
            return f"{name} is not {expected}"
    wrong = (name for name in NUMBERS if not _is_number(step.get(name)))
    return next((f"{name} is no number" for name in wrong), None)


def shape_problem(step: dict[str, Any], shapes: dict[tuple[str, Any], Shape]) -> str | None:
    """What is wrong with a record's arrays, beside those of earlier records, whose `shapes` it adds to."""
    for name in sorted(ARRAYS & step.keys()):
        shape = _shape(step[name])
        if not shape or shapes.setdefault((name, step.get("experts")), shape) != shape:
            return f"{name} is no array of numbers as in other steps"
        most = MOST_NATS if name.endswith("entropy") else FLOAT32
        if name != "active" and _exceeds(step[name], most):
            return f"{name} is larger than can be"
    if not all(isinstance(mask, int) for mask in step.get("active", ())):
        return "active is not of integers"
    return None


def _is_number(value: Any) -> bool:
    """Whether it is null, or a number of a size that can be."""
    return isinstance(value, int | float | None) and not _exceeds(value, FLOAT32)


def _exceeds(value: Any, most: float) -> bool:
    """Whether a number, or one in nested lists, is larger in absolute value and finite."""
    if isinstance(value, list):
        return any(_exceeds(part, most) for part in value)
    return value is not None and most < abs(value) < math.inf


def _shape(value: Any) -> Shape | None:
    """The shape of a number (`null` is NaN) or of nested lists of numbers; None for anything else."""
    if value is None or isinstance(value, int | float):
        return ()
    inner = {_shape(part) for part in value} if isinstance(value, list) else set()
    first = inner.pop() if len(inner) == 1 else None
    return None if first is None else (len(value), *first)


def rewind(path: Path, step: int) -> None:
    """Drop the records of steps after `step`, so that a resumed run writes none twice."""
    kept = [m for m in read_records(path) if m["step"] <= step]
    write_text(path, "".join(json.dumps(m) + "\n" for m in kept))


@dataclass(frozen=True)
class ExpertUse:
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

    def flat(self) -> Tensor:
        """All sums as one vector, float64."""
        return torch.cat([getattr(self, field.name).double().flatten() for field in fields(self)])

    def like(self, values: Tensor) -> "ExpertUse":
        """Other values of `flat` as sums of this shape."""
        shapes = [getattr(self, field.name).shape for field in fields(self)]
        parts = values.split([shape.numel() for shape in shapes])
        return ExpertUse(*(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))


@torch.no_grad()
def expert_use(routings: tuple[Routing, ...]) -> ExpertUse:
    """The sums over one micro-batch's routing decisions, one of every layer."""

    def layers(statistic: Callable[[Routing], Tensor]) -> Tensor:
        return torch.stack([statistic(r) for r in routings])

    def summed(mean: Callable[[Routing], Tensor]) -> Tensor:
        return torch.stack([stats.units(r) * mean(r) for r in routings])

    return ExpertUse(
        units=layers(stats.units),
        choices=layers(stats.choices),
        gates=summed(stats.mean_gates),
        logits=summed(stats.mean_logits),
        active=layers(stats.active_experts).float(),
        gate_entropy=summed(stats.gate_entropy),
        confidence_entropy=summed(losses.confidence_entropy),
    )


def add_up(uses: Sequence[ExpertUse]) -> ExpertUse:
    """The sums over several micro-batches."""
    columns = zip(*([getattr(use, field.name) for field in fields(use)] for use in uses), strict=True)
    return ExpertUse(*(torch.stack(column).sum(0) for column in columns))


def amounts(use: ExpertUse, design: RoutingConfig) -> Tensor:
    """What each expert got, (layers, E): choices, or gates where every unit gets every expert."""
    return use.gates if design.soft else use.choices


def add_amounts(before: Amounts, use: ExpertUse, design: RoutingConfig) -> Amounts:
    """`amounts` of a step, and those `before` where they are of as many experts; none for a dense model."""
    added = amounts(use, design).double()
    if added.shape[-1] == 1:
        return ()
    earlier = torch.tensor(before, dtype=torch.float64)
    both = earlier + added if earlier.shape == added.shape else added
    return tuple(map(tuple, both.tolist()))


def expert_metrics(use: ExpertUse, design: RoutingConfig, since_record: Amounts = ()) -> dict[str, Any]:
    """A step's statistics, per layer; empty for a dense model. Entropies are in nats.

    - `gate_entropy`, `confidence_entropy`: means over units of the entropy of their gates, and of the
      softmax of their logits.
    - `load_entropy`: entropy of the load, log E when it is even.
    - `active`: a bit mask of the active experts, bit i for expert i; over a window of steps, utilisation is
      the union of its masks. An expert is active if a unit chose it; in a design that gives every unit
      every expert, if a unit's gate is above 2/E (Lory appendix G.1).

    With `since_record`, the sum of `amounts` over the steps since the last record of every expert, also
    `choices`, that sum over experts; and per expert: `load`, its share of it, since few units choose in a
    single step; and of this step `mean_gates`, and `activation_norms` where experts score themselves.
    """
    if use.gates.shape[-1] == 1:
        return {}
    units = use.units[:, None]
    measured = {
        "gate_entropy": use.gate_entropy / use.units,
        "confidence_entropy": use.confidence_entropy / use.units,
        "load_entropy": stats.entropy(stats.shares(amounts(use, design))),
    }
    if since_record:
        amounts_LE = torch.tensor(since_record, dtype=torch.float64)
        measured |= {"load": stats.shares(amounts_LE), "choices": amounts_LE.sum(-1)}
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
