"""One text as a model read it: its tokens, the experts of each, and the loss of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.analyze.routes import Routes, shares
from loriini.reporting.curves import Floats
from loriini.routing import RoutingConfig

DECIMALS = 4


@dataclass(frozen=True)
class Reading:
    """The tokens of a text, their routing and their losses.

    - `pieces` (N): the part of the text that each token stands for.
    - `starts`: the first token of each context.
    - `unit_N`: the unit that each token is routed in; -1 where it is not routed.
    - `gates_LUE`: the weight of each expert in each unit, 0 where it was not selected.
    - `losses_N`: the negative log-likelihood in nats of each token given those before it in its context; NaN
      where it is not predicted.
    """

    pieces: tuple[str, ...]
    starts: tuple[int, ...]
    unit_N: NDArray[np.int64]
    gates_LUE: Floats
    losses_N: Floats

    @cached_property
    def tokens_of_units(self) -> list[NDArray[np.int64]]:
        return [np.flatnonzero(self.unit_N == unit) for unit in range(self.gates_LUE.shape[1])]

    def choice_shares(self, soft: bool) -> Floats:
        """The share of the choices that falls on each expert (L, E); of the weights, if `soft`."""
        chosen_LUE = self.gates_LUE if soft else (self.gates_LUE > 0).astype(np.float64)
        return shares(chosen_LUE.sum(1))

    def to_dict(self, dense_losses_N: Floats | None = None) -> dict[str, Any]:
        """The numbers as JSON; `weights[layer][unit]` is [[expert, weight], …] of the selected experts."""
        return {
            "experts": self.gates_LUE.shape[2],
            "starts": list(self.starts),
            "unit": self.unit_N.tolist(),
            "weights": [[_pairs(gates_E) for gates_E in gates_UE] for gates_UE in self.gates_LUE],
            "loss": _rounded(self.losses_N),
            "dense": None if dense_losses_N is None else _rounded(dense_losses_N),
        }


@dataclass(frozen=True)
class Lens:
    """What the page shows: a reading, the design that made it, and what it is compared with.

    `left_out` counts the tokens after the last one that was read. `dense_losses_N`: the losses of a dense
    model, if given. `routes`: the routes of the run by domain, if measured.
    """

    name: str
    design: RoutingConfig
    reading: Reading
    left_out: int = 0
    label: str | None = None
    dense: str | None = None
    dense_losses_N: Floats | None = None
    routes: Routes | None = None

    @property
    def unit(self) -> str:
        return {"token": "token", "sequence": "context"}.get(self.design.unit, "segment")

    @property
    def gains_N(self) -> Floats | None:
        """The dense model's loss minus the mixture's (N,): above 0 the mixture is better."""
        return None if self.dense_losses_N is None else self.dense_losses_N - self.reading.losses_N

    @property
    def compared_gains_N(self) -> Floats | None:
        """The gains of the tokens in `counted_N`; NaN elsewhere."""
        return None if self.gains_N is None else np.where(self.counted_N, self.gains_N, np.nan)

    @cached_property
    def counted_N(self) -> NDArray[np.bool_]:
        """A mask of the predicted tokens whose mean loss can be compared with other models'.

        Without a context's first segment if that is routed by itself, unless there are no other tokens.
        """
        predicted_N = np.isfinite(self.reading.losses_N)
        after_N = predicted_N & ~self._self_routed_N
        return after_N if after_N.any() else predicted_N

    @property
    def which_counted(self) -> str:
        """Which tokens `counted_N` has, to be appended to the name of a measure; empty if it has all."""
        leaks = self._self_routed_N & self.counted_N
        if leaks.any():
            return " (its experts see these tokens)"
        return " after segment 1" if self._self_routed_N.any() else ""

    @cached_property
    def _self_routed_N(self) -> NDArray[np.bool_]:
        """A mask of the predicted tokens in segments that are routed by themselves."""
        routed_N = np.zeros(len(self.reading.pieces), bool)
        if self.design.causality == "after_first_segment":
            for start in self.reading.starts:
                routed_N[start : start + self.design.segment_length + 1] = True
        return routed_N & np.isfinite(self.reading.losses_N)


def domain_overlaps(reading: Reading, soft: bool, routes: Routes) -> Mapping[str, float]:
    """The overlap of the text's routing with that of each domain, the most similar first.

    The overlap of two distributions is Σ_E min(p, q) over experts, averaged over layers: 1 if they are equal,
    0 if they share no expert. Distributions are shares of choices, as in `Routes.choice_shares`.
    """
    shares_LDE = routes.choice_shares
    overlap_D = np.minimum(reading.choice_shares(soft)[:, None], shares_LDE).sum(-1).mean(0)
    return {routes.domains[i]: float(overlap_D[i]) for i in np.argsort(-overlap_D, kind="stable")}


def mean_overlap(routes: Routes) -> float:
    """The mean overlap of two different domains."""
    shares_LDE = routes.choice_shares
    first, second = np.triu_indices(len(routes.domains), 1)
    return float(np.minimum(shares_LDE[:, first], shares_LDE[:, second]).sum(-1).mean())


def _pairs(gates_E: Floats) -> list[list[float]]:
    return [[int(expert), round(float(gates_E[expert]), DECIMALS)] for expert in np.flatnonzero(gates_E)]


def _rounded(losses_N: Floats) -> list[float | None]:
    return [None if np.isnan(loss) else round(float(loss), DECIMALS) for loss in losses_N]
