"""Perplexity on held-out text, by domain, with and without the first tokens of each instance."""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from loriini.common.errors import InputError
from loriini.common.hardware import Precision, autocast
from loriini.common.progress import progress
from loriini.evaluate.heldout import HeldOut, check_lengths
from loriini.evaluate.settings import EvaluationRouting
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.context import segment_problem
from loriini.model.generate.mode import evaluation_mode
from loriini.model.generate.routing_inputs import prompt_routing, routing_inputs
from loriini.model.outputs import LoriiniOutput
from loriini.parallel.mesh import gather_rows, group_size, own_rows

EVALUATION_VERSION = 1
"""Version of what `evaluate` measures: evaluations of another are not reused."""
LARGE_BATCH = 1 << 28
"""Tokens times vocabulary of what is evaluated at once."""


def evaluated_at_once(ids_NL: Tensor, config: LoriiniConfig) -> int:
    """How many instances are evaluated at once: at most 16, and fewer where their logits are many."""
    return min(16, most_at_once(ids_NL.shape[1], config.vocab_size))


def most_at_once(length: int, vocabulary: int) -> int:
    """How many sequences of `length` tokens LARGE_BATCH allows at once; at least 1."""
    return max(1, LARGE_BATCH // (length * vocabulary))


def counts_first_segment(config: LoriiniConfig, skip: int) -> bool:
    """Whether tokens of segment 1 are counted although it is routed by itself."""
    return skip < config.first_segment_length and config.design.causality == "after_first_segment"


@torch.no_grad()
def evaluate(
    model: LoriiniForCausalLM,
    heldout: Mapping[str, HeldOut],
    skip: int | None = None,
    *,
    batch_size: int | None = None,
    precision: Precision = "auto",
    routing: EvaluationRouting = "training",
    document_mask: bool = False,
    title: str = "evaluation",
    shown: bool = True,
) -> dict[str, Any]:
    """Measures as {measure: {domain: value}}, and the settings that they depend on.

    - `perplexity` leaves out the first `skip` predictions of every instance (by default the model's own
      segment 1; give the same `skip` to models that are compared), `tokens` is how many it counts.
    - `perplexity_all` and `bits_per_byte` count all predictions, `bits_per_byte_counted` those that
      `perplexity` counts. A token has the mean number of bytes of its domain's.
    - `routing`: `training` routes as in training; `prompt` and `segment` route as generation does, with the
      first `skip` tokens of an instance as its prompt.
    - `batch_size` is how many instances a process evaluates at once; by default as many as LARGE_BATCH
      allows.
    - `document_mask` masks attention between the documents of an instance, as in training; the first `skip`
      predictions are then left out of each document instead of each instance.
    - `instance_losses` are the mean negative log-likelihoods of the instances, in nats, of the predictions
      that `perplexity` counts; with `document_mask` there is also `instance_tokens`, how many these are. An
      instance without any is NaN.
    - `title` names the progress, `shown` shows it.

    In a process group the processes share the instances, and all return the same. InputError for a domain
    that is too short, for one that a label-routed model does not know, and for a routing that the design does
    not admit.
    """
    skip = model.config.first_segment_length if skip is None else skip
    check_lengths(heldout, skip, document_mask=document_mask)
    check_routing(model.config, routing, skip, document_mask)
    results: dict[str, dict[str, Any]] = defaultdict(dict)
    evaluated = 0
    with progress(title, sum(len(h.ids) for h in heldout.values()), shown) as advance:
        for domain, text in heldout.items():
            losses, positions_NL = [], text.positions_in(document_mask)[:, :-1]
            at_once = group_size() * (batch_size or evaluated_at_once(text.ids, model.config))
            for ids_BL, positions_BL in zip(
                text.ids.split(at_once), positions_NL.split(at_once), strict=True
            ):
                inputs = routing_inputs(model, domain, len(ids_BL), evaluated)
                if document_mask:
                    inputs["position_ids"] = positions_BL.to(model.device)
                losses.append(_losses(model, ids_BL, precision, inputs, routing, skip))
                evaluated += len(ids_BL)
                advance(len(ids_BL), domain)
            losses_NL, counted_NL = torch.cat(losses), positions_NL >= skip
            measured = _measures(losses_NL, counted_NL, text.bytes_per_token)
            measured |= _of_instances(losses_NL, counted_NL, document_mask)
            for name, value in measured.items():
                results[name][domain] = value
    return {**results, "skip": skip, "routing": routing, **_conditions(model.config, routing, document_mask)}


def _measures(losses_NL: Tensor, counted_NL: Tensor, bytes_per_token: float) -> dict[str, Any]:
    """What `evaluate` reports of a domain, from the losses of its predictions and which of them count."""
    counted, overall = losses_NL[counted_NL].mean(), losses_NL.mean()
    bits_per_byte = 1 / bytes_per_token / math.log(2)  # of a loss of 1 nat a token
    return {
        "perplexity": counted.exp().item(),  # infinite where math.exp overflows
        "perplexity_all": overall.exp().item(),
        "bits_per_byte": overall.item() * bits_per_byte,
        "bits_per_byte_counted": counted.item() * bits_per_byte,
        "tokens": int(counted_NL.sum()),
    }


def _of_instances(losses_NL: Tensor, counted_NL: Tensor, document_mask: bool) -> dict[str, Any]:
    """The mean loss of each instance, and with `document_mask` how many predictions count."""
    counts_N = counted_NL.sum(1)
    means = {"instance_losses": ((losses_NL * counted_NL).sum(1) / counts_N).tolist()}
    return {**means, "instance_tokens": counts_N.tolist()} if document_mask else means


def score_tokens(
    model: LoriiniForCausalLM,
    ids_BL: Tensor,
    precision: Precision = "auto",
    **inputs: Any,
) -> LoriiniOutput:
    """What a model makes of instances (B, L+1): `loss` (B, L) in nats of each next token, and its routings.

    `inputs` are passed to the model: `routing_inputs`, `prompt_lengths` and `inference_routing`.
    """
    ids_BL = ids_BL.to(model.device)
    with evaluation_mode(model), autocast(precision, model.device):
        out: LoriiniOutput = model(ids_BL[:, :-1], shift_labels=ids_BL[:, 1:], reduction="none", **inputs)
    return out


def check_routing(
    config: LoriiniConfig, routing: EvaluationRouting, skip: int, document_mask: bool = False
) -> None:
    """InputError for a routing that evaluates nothing: without segments, or without a prompt."""
    design = config.design
    if document_mask and routing != "training":
        raise InputError(f"routing={routing}: documents that share an instance have no prompt; use training")
    if routing == "segment" and (problem := segment_problem(config)):
        raise InputError(f"routing=segment: {problem}")
    if routing != "training" and skip == 0 and design.pooled and design.data_dependent:
        raise InputError(f"routing={routing}: the tokens that are skipped are the prompt; skip at least 1")


def _losses(
    model: LoriiniForCausalLM,
    ids_BL: Tensor,
    precision: Precision,
    inputs: Mapping[str, Tensor | None],
    routing: EvaluationRouting,
    skip: int,
) -> Tensor:
    """A batch's losses (B, L) in float64, on the CPU; each process computes a part of its instances."""
    own = own_rows(len(ids_BL))
    shared = {name: value[own.to(value.device)] for name, value in inputs.items() if value is not None}
    inference = prompt_routing(model, routing, len(own), max(1, skip))
    out = score_tokens(model, ids_BL[own], precision, **shared, **inference)
    return gather_rows(out.loss, len(ids_BL)).double().cpu()


def _conditions(config: LoriiniConfig, routing: EvaluationRouting, document_mask: bool) -> dict[str, Any]:
    """The causality of the predictions that count, and settings of some models alone.

    Routed by a skipped prompt, no prediction sees a later token.
    """
    design = config.design
    by_prompt = routing == "prompt" and design.causality != "strict"
    conditions: dict[str, Any] = {"causality": "after_prompt" if by_prompt else design.causality}
    if document_mask:
        conditions["document_mask"] = True
    if design.segmented and routing == "training":
        conditions["first_segment"] = design.first_segment
    return conditions
