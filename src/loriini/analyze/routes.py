"""Which experts the held-out text of each domain is routed to, in every layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from loriini.common.atomic import atomic, write_json
from loriini.common.errors import InputError
from loriini.common.hardware import Precision, autocast
from loriini.common.progress import progress
from loriini.evaluate.heldout import HeldOut
from loriini.model import LoriiniForCausalLM
from loriini.model.generate.prompts import check_ids
from loriini.model.generate.routing_inputs import routing_inputs
from loriini.model.mode import evaluation_mode
from loriini.model.weights.loading import check_finite
from loriini.reporting.curves import Floats
from loriini.routing import Routing
from loriini.routing.stats import entropy

ROUTES = "routes.npz"
DRAWS = 200


@dataclass(frozen=True)
class Routes:
    """Sums over the held-out units (tokens, segments or sequences) of each domain D, for layers L, experts E.

    - `choices` (L, D, E): how many units chose each expert. A design that gives every unit every expert
      makes no choices; there it is the sum of the units' gates.
    - `mean_gates` (L, D, E): mean gate over units; 0 counts for units that did not choose the expert.
    - `confidence_entropy` (L, D): mean entropy of the softmax of a unit's logits, in nats (AoE equation 8).
    - `domain_bits` (L,): mutual information of domain and expert, in bits. Domains count the same, as do the
      documents of each; a document is represented by one of its sequences, drawn at random (mean over draws).
    - `chance_bits` (L,): the same after assigning documents to domains at random.
    - `units` (D,), `sequences` (D,): how many were routed.
    - `field`: the field of the documents that the domains are from.
    """

    choices: Floats
    mean_gates: Floats
    confidence_entropy: Floats
    domain_bits: Floats
    chance_bits: Floats
    units: NDArray[np.int64]
    sequences: NDArray[np.int64]
    domains: tuple[str, ...]
    field: str = "domain"

    @property
    def choice_shares(self) -> Floats:
        """The share of a domain's choices that falls on each expert (L, D, E), Σ_E = 1."""
        return shares(self.choices)

    @property
    def expert_load(self) -> Floats:
        """The share of all choices that falls on each expert (L, E), Σ = 1 (AoE section 4.1.2)."""
        return shares(self.choices.sum(1))

    @property
    def experts_per_unit(self) -> Floats:
        """Mean number of experts that a unit chose (L,); mean sum of gates if the design makes no choices."""
        per_unit: Floats = self.choices.sum((1, 2)) / self.units.sum()
        return per_unit

    @property
    def load_entropy(self) -> Floats:
        """Entropy of the load in nats (L,): log E when it is even, 0 when one expert has it all."""
        return entropy(torch.from_numpy(self.expert_load)).numpy()

    @property
    def load_range(self) -> Floats:
        """The largest load minus the smallest (L,)."""
        return np.ptp(self.expert_load, axis=-1)

    @property
    def most_bits(self) -> Floats:
        """An upper bound of `domain_bits` (L,): log2(D), or if smaller log2(E/k) for k choices of each unit.

        If the number of choices varies, k is 1, since some units may choose a single expert.
        """
        k_LD = self.choices.sum(-1) / self.units
        same_L = np.isclose(k_LD, np.round(k_LD[:, :1]), rtol=1e-4).all(1)
        k_L = np.where(same_L, np.round(k_LD[:, 0]).clip(min=1), 1)
        return np.log2(np.minimum(len(self.domains), self.choices.shape[-1] / k_L))

    @property
    def domain_agreement(self) -> Floats:
        """Adjusted mutual information (L,): bits above chance as a share of the most that is possible.

        0 is chance. 1: the domain decides the experts, which identify every domain or are all used equally.
        """
        above, most = self.domain_bits - self.chance_bits, self.most_bits - self.chance_bits
        return np.divide(above, most, out=np.zeros_like(above), where=most > 1e-9)

    def largest(self, count: int) -> "Routes":
        """The routes of the `count` domains with the most units, in their order."""
        kept = np.sort(np.argsort(-self.units, kind="stable")[:count])
        by_domain = ("choices", "mean_gates", "confidence_entropy")
        return replace(
            self,
            **{name: getattr(self, name)[:, kept] for name in by_domain},
            units=self.units[kept],
            sequences=self.sequences[kept],
            domains=tuple(self.domains[i] for i in kept),
        )

    def save(self, path: Path) -> None:
        """Write `path`, an npz of the fields, and next to it the statistics as `.json`; both atomically."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        with atomic(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **arrays | {"domains": np.array(self.domains, np.str_)})
        write_json(path.with_suffix(".json"), self.to_dict())

    @classmethod
    def load(cls, path: Path) -> "Routes":
        """Read what `save` wrote. InputError for any other file, such as one that lacks a field."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                values = {field.name: arrays[field.name] for field in fields(cls)}
        except (KeyError, ValueError, OSError, EOFError, BadZipFile) as error:
            raise InputError(f"{path}: not readable routes ({error}); run loriini analyze again") from None
        return cls(**values | {"domains": tuple(values["domains"].tolist()), "field": str(values["field"])})

    def to_dict(self) -> dict[str, Any]:
        """The statistics of every layer as a JSON object."""
        of_load = ("experts_per_unit", "load_entropy", "load_range")
        of_layers = (*of_load, "domain_bits", "chance_bits", "domain_agreement")
        of_domains = ("confidence_entropy", "choice_shares", "mean_gates")
        per_layer = {name: getattr(self, name) for name in (*of_layers, *of_domains)}
        layers = [
            {
                "load": load_E.tolist(),
                **{name: float(per_layer[name][layer]) for name in of_layers},
                **{name: self._of_domains(per_layer[name][layer]) for name in of_domains},
            }
            for layer, load_E in enumerate(self.expert_load)
        ]
        counts = {"units": self._of_domains(self.units), "sequences": self._of_domains(self.sequences)}
        return {"field": self.field, **counts, "layers": layers}

    def _of_domains(self, values: NDArray[Any]) -> dict[str, Any]:
        return dict(zip(self.domains, values.tolist(), strict=True))


@torch.no_grad()
def routes_by_domain(
    model: LoriiniForCausalLM,
    heldout: Mapping[str, HeldOut],
    precision: Precision,
    batch_size: int = 8,
    field: str = "domain",
) -> Routes:
    """Route held-out text in evaluation mode, and sum what each domain's units choose.

    As in scoring, all tokens of an instance but the last are routed. All units that hold tokens count, also
    those of segment 1. InputError for a domain that a label-routed model does not know.
    """
    counts_D = np.array([len(text.instances) for text in heldout.values()])
    sums: list[Tensor] = []
    routed = 0
    with evaluation_mode(model), progress("routes", int(counts_D.sum())) as advance:
        for domain, text in heldout.items():
            for start in range(0, len(text.instances), batch_size):
                batch = [ids[:-1] for ids in text.instances[start : start + batch_size]]
                inputs = routing_inputs(model, domain, len(batch), routed)
                sums.append(_batch_sums(model, batch, inputs, precision))
                routed += len(batch)
                advance(len(batch), domain)
    per_sequence = torch.cat(sums).cpu().numpy()
    E = model.config.num_experts
    totals_LDX = _sums_of_domains(per_sequence, np.repeat(np.arange(len(counts_D)), counts_D))
    units_D = totals_LDX[0, :, -1]
    document_of = [text.documents or range(len(text.instances)) for text in heldout.values()]
    bits_L, chance_L = _information(shares(per_sequence[..., :E]), document_of)
    return Routes(
        choices=totals_LDX[..., :E],
        mean_gates=totals_LDX[..., E : 2 * E] / units_D[:, None],
        confidence_entropy=totals_LDX[..., 2 * E] / units_D,
        domain_bits=bits_L,
        chance_bits=chance_L,
        units=units_D.astype(np.int64),
        sequences=counts_D.astype(np.int64),
        domains=tuple(heldout),
        field=field,
    )


def _batch_sums(
    model: LoriiniForCausalLM, sequences: list[Tensor], inputs: Mapping[str, Any], precision: Precision
) -> Tensor:
    """Sums over the units of each sequence (B, L, 2E+2): choices, gates, confidence entropy, units."""
    ids_BL = pad_sequence(sequences, batch_first=True)
    check_ids(ids_BL, model)
    ids_BL = ids_BL.to(model.device)
    lengths_B = torch.tensor([len(ids) for ids in sequences], device=model.device)
    mask_BL = torch.arange(ids_BL.shape[1], device=model.device) < lengths_B[:, None]
    with autocast(precision, model.device):
        # without the output head: its logits would take much memory
        out = model.model(ids_BL, mask_BL.long(), **inputs)
    check_finite(out.last_hidden_state, "the model's states")
    soft = model.config.routing.soft
    return torch.stack([_unit_sums(routing, soft) for routing in out.routings], dim=1)


def _unit_sums(routing: Routing, soft: bool) -> Tensor:
    """One layer's `_batch_sums` (B, 2E+2)."""
    gates, log_p = routing.gates.double(), routing.logits.double().log_softmax(-1)
    chosen = gates if soft else (gates > 0).double()
    confidence = -(log_p.exp() * log_p).sum(-1, keepdim=True)
    values = torch.cat([chosen, gates, confidence, torch.ones_like(confidence)], dim=-1)
    if routing.valid is not None:
        values = values * routing.valid[:, None]
    return values.view(*routing.unit_shape, -1).sum(1)


def _sums_of_domains(values_SLX: Floats, domain_S: NDArray[np.int64]) -> Floats:
    """Sums (L, D, X) over the sequences of each domain; every domain must have at least one."""
    order = np.argsort(domain_S, kind="stable")
    begins_D = np.searchsorted(domain_S[order], np.arange(domain_S.max() + 1))
    sums_DLX: Floats = np.add.reduceat(values_SLX[order], begins_D, axis=0)
    return sums_DLX.swapaxes(0, 1)


def _means_of_domains(values_GLX: Floats, domain_G: NDArray[np.int64]) -> Floats:
    """Means (L, D, X) over the documents of each domain."""
    return _sums_of_domains(values_GLX, domain_G) / np.bincount(domain_G)[:, None]


def _information(shares_SLE: Floats, documents: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
    """`domain_bits` and `chance_bits` (L,) of the shares of each sequence's choices.

    `documents` has the number of the document in which each of a domain's sequences begins. Sequences of one
    document are similar, so documents, not sequences, are assigned to domains at random. With few documents
    chance alone gives some bits; with one per domain it gives all of them. Each document is represented by
    one sequence: with all of its sequences, a long document would be less noisy than a short one, and domains
    of long documents would seem to differ less than by chance.
    """
    domain_S = np.repeat(np.arange(len(documents)), [len(of_domain) for of_domain in documents])
    begins_S = np.concatenate([np.asarray(of_domain) for of_domain in documents])
    _, document_S = np.unique(np.stack([domain_S, begins_S]), axis=1, return_inverse=True)
    order = np.argsort(document_S, kind="stable")
    shares_SLE, length_G = shares_SLE[order], np.bincount(document_S)
    first_G = np.cumsum(length_G) - length_G
    domain_G = domain_S[order][first_G]
    draw, assign = np.random.default_rng(0), np.random.default_rng(1)
    bits_L, chance_L = np.zeros((2, shares_SLE.shape[1]))
    for _ in range(DRAWS):
        drawn_GLE = shares_SLE[first_G + draw.integers(length_G)]
        bits_L += mutual_information(_means_of_domains(drawn_GLE, domain_G)) / DRAWS
        chance_L += mutual_information(_means_of_domains(drawn_GLE, assign.permutation(domain_G))) / DRAWS
    return bits_L, chance_L


def mutual_information(counts: ArrayLike) -> Floats:
    """I(row; column) in bits of each table of counts (…, D, E): 0 when all rows are in proportion."""
    joint = np.asarray(counts, np.float64)
    joint = joint / np.maximum(joint.sum((-2, -1), keepdims=True), np.finfo(np.float64).tiny)
    independent = joint.sum(-1, keepdims=True) * joint.sum(-2, keepdims=True)
    ratio = np.divide(joint, independent, out=np.ones_like(joint), where=joint > 0)
    return np.maximum((joint * np.log2(ratio)).sum((-2, -1)), 0)


def shares(amounts: Floats) -> Floats:
    """Amounts (…, E) as shares of their sum; all zeros if the sum is 0."""
    return amounts / np.maximum(amounts.sum(-1, keepdims=True), np.finfo(np.float64).tiny)
