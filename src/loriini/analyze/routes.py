"""Who routes where: the mean weight of every expert in every layer for the text of each domain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from loriini.atomic import atomic
from loriini.errors import InputError
from loriini.hardware import autocast
from loriini.model import LoriiniForCausalLM
from loriini.model.labels import labels_of
from loriini.routing import Routing
from loriini.routing.losses import mean_gates

ROUTES = "routes.npz"


@dataclass(frozen=True)
class Routes:
    """`mean_gates` (layers, domains, E), `domains`, and how many `units` (domains,) each mean is over."""

    mean_gates: NDArray[np.float64]
    domains: tuple[str, ...]
    units: NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Write the routes to an `.npz` file atomically."""
        domains = np.array(self.domains, np.str_)
        with atomic(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, mean_gates=self.mean_gates, domains=domains, units=self.units)

    @classmethod
    def load(cls, path: Path) -> "Routes":
        """Read what `save` wrote; InputError when that is not what it is."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return cls(arrays["mean_gates"], tuple(arrays["domains"].tolist()), arrays["units"])
        except (KeyError, ValueError, OSError) as error:
            raise InputError(f"{path}: not readable routes ({error}); run loriini analyze again") from None


@torch.no_grad()
def routes_by_domain(
    model: LoriiniForCausalLM, instances_by_domain: Mapping[str, Tensor], batch_size: int = 8
) -> Routes:
    """Run the model in evaluation mode over each domain's instances (n, L+1) and average its gates.

    All units that hold tokens count, those of segment 1 too. A domain without instances is left out;
    ValueError when none has any, InputError for a domain that a label-routed model does not know.
    """
    parts = {name: ids for name, ids in instances_by_domain.items() if len(ids)}
    if not parts:
        raise ValueError("there are no instances to route")
    training = model.training
    model.eval()
    try:
        means, units = zip(
            *(_mean_gates(model, name, ids.split(batch_size)) for name, ids in parts.items()), strict=True
        )
    finally:
        model.train(training)
    return Routes(np.stack(means, axis=1), tuple(parts), np.array(units, np.int64))


def _mean_gates(
    model: LoriiniForCausalLM, domain: str, batches: Sequence[Tensor]
) -> tuple[NDArray[np.float64], int]:
    """Mean gates (layers, E) over all units of a domain's batches, and how many those are."""
    total: Tensor | float = 0.0
    count = 0
    for ids in batches:
        with autocast("auto"):
            labels_B = labels_of(model, domain, len(ids))
            routings = model(ids[:, :-1].to(model.device), routing_labels=labels_B).routings
        units = _units(routings[0])
        total = total + units * torch.stack([mean_gates(r).double() for r in routings])
        count += units
    return np.asarray((torch.as_tensor(total) / count).cpu()), count


def _units(routing: Routing) -> int:
    """How many units hold tokens."""
    return len(routing.gates) if routing.valid is None else int(routing.valid.sum())


def mutual_information(mean_gates: ArrayLike, units: ArrayLike) -> NDArray[np.float64]:
    """Bits that the expert tells of the domain, per layer: I(domain; expert), domains weighed by their units.

    An expert is thought of as drawn by its weight, so p(expert | domain) is the domain's mean gates
    (layers, domains, E), scaled to sum to 1. It is 0 when every domain is routed alike and at most the
    smaller of log2 E and the entropy of the domains.
    """
    gates, counts = np.asarray(mean_gates, np.float64), np.asarray(units, np.float64)
    sums = gates.sum(-1, keepdims=True)
    conditional = np.divide(gates, sums, out=np.full_like(gates, 1 / gates.shape[-1]), where=sums > 0)
    joint = conditional * (counts / counts.sum())[:, None]
    independent = joint.sum(1, keepdims=True) * joint.sum(2, keepdims=True)
    ratio = np.divide(joint, independent, out=np.ones_like(joint), where=joint > 0)
    return np.maximum((joint * np.log2(ratio)).sum((1, 2)), 0)


def top_experts(mean_gates: ArrayLike) -> NDArray[np.int64]:
    """The expert that each layer weighs most for each domain (layers, domains)."""
    return np.asarray(mean_gates).argmax(-1)
