"""Perplexity on held-out text, by domain, with and without the first tokens of each instance."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from loriini.common.errors import InputError
from loriini.common.hardware import Precision, autocast
from loriini.common.progress import progress
from loriini.evaluate.heldout import HeldOut, check_lengths
from loriini.evaluate.settings import EvaluationRouting
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.arguments import segment_problem
from loriini.model.generate.routing_inputs import prompt_routing, routing_inputs
from loriini.model.mode import evaluation_mode
from loriini.model.outputs import LoriiniOutput
from loriini.parallel.mesh import gather_rows, own_rows, world_size

EVALUATION_VERSION = 1
"""Version of what `evaluate` measures: evaluations of another version are not reused."""
TOKENS_AT_ONCE = 1 << 13
"""Most tokens that are evaluated at once, unless one sequence has more."""


def most_at_once(length: int) -> int:
    """How many sequences of `length` tokens TOKENS_AT_ONCE allows at once; at least 1."""
    return max(1, TOKENS_AT_ONCE // length)


def counts_first_segment(config: LoriiniConfig, skip: int) -> bool:
    """True if perplexity counts tokens of segment 1 and the design routes segment 1 by itself."""
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
    title: str = "evaluation",
    shown: bool = True,
) -> dict[str, Any]:
    """Evaluate a model: {measure: {domain: value}}, and the settings that the measures depend on.

    - `perplexity` leaves out the first `skip` predictions of every instance (by default the model's own
      segment 1; give the same `skip` to models that are compared), `tokens` is how many it counts.
    - `perplexity_all` and `bits_per_byte` count all predictions, `bits_per_byte_counted` those that
      `perplexity` counts. Bytes are tokens times the domain's mean bytes per token.
    - `routing`: `training` routes as in training; `prompt` and `segment` route as generation does, with the
      first `skip` tokens of an instance as its prompt.
    - `batch_size` is how many instances a process evaluates at once; by default 16, or fewer if
      TOKENS_AT_ONCE allows no more.
    - `instance_losses` are each instance's mean negative log-likelihood, in nats, over the predictions that
      `perplexity` counts (NaN if there are none), and `instance_tokens` the numbers of these predictions.
    - `title` is the name of the progress display; `shown=False` hides it.

    In a process group the processes share the instances, and all return the same. InputError for a domain
    that is too short, for one that a label-routed model does not know, and for a routing that the design does
    not admit.
    """
    skip = model.config.first_segment_length if skip is None else skip
    check_lengths(heldout, skip)
    check_routing(model.config, routing, skip)
    results: dict[str, dict[str, Any]] = defaultdict(dict)
    evaluated = 0
    with progress(title, sum(len(text.instances) for text in heldout.values()), shown) as advance:
        for domain, text in heldout.items():
            losses: list[Tensor] = []
            longest = max(map(len, text.instances)) - 1
            at_once = world_size() * (batch_size or min(16, most_at_once(longest)))
            for start in range(0, len(text.instances), at_once):
                batch = text.instances[start : start + at_once]
                inputs = routing_inputs(model, domain, len(batch), evaluated)
                losses += _losses(model, batch, precision, inputs, routing, skip)
                evaluated += len(batch)
                advance(len(batch), domain)
            for name, value in _measures(losses, skip, text.bytes_per_token).items():
                results[name][domain] = value
    return {**results, "skip": skip, "routing": routing, **_conditions(model.config, routing)}


def _measures(losses: Sequence[Tensor], skip: int, bytes_per_token: float) -> dict[str, Any]:
    """What `evaluate` reports for a domain, from each instance's losses (l,)."""
    counted = [losses_L[skip:] for losses_L in losses]
    mean_counted, mean_all = torch.cat(counted).mean(), torch.cat([*losses]).mean()
    bits_per_byte = 1 / bytes_per_token / math.log(2)  # of a loss of 1 nat a token
    return {
        "perplexity": mean_counted.exp().item(),  # infinite where math.exp overflows
        "perplexity_all": mean_all.exp().item(),
        "bits_per_byte": mean_all.item() * bits_per_byte,
        "bits_per_byte_counted": mean_counted.item() * bits_per_byte,
        "tokens": sum(map(len, counted)),
        "instance_losses": [losses_L.mean().item() for losses_L in counted],
        "instance_tokens": [*map(len, counted)],
    }


def score_tokens(
    model: LoriiniForCausalLM, ids_BL: Tensor, precision: Precision = "auto", **inputs: Any
) -> LoriiniOutput:
    """A model's output on instances (B, L+1): `loss` (B, L) of each next token, in nats, and the routings.

    `inputs` are further arguments of the model, such as those of `routing_inputs` and `prompt_routing`.
    """
    ids_BL = ids_BL.to(model.device)
    with evaluation_mode(model), autocast(precision, model.device):
        out: LoriiniOutput = model(ids_BL[:, :-1], shift_labels=ids_BL[:, 1:], reduction="none", **inputs)
    return out


def check_routing(config: LoriiniConfig, routing: EvaluationRouting, skip: int) -> None:
    """InputError for `segment` if whole sequences are routed, and if routing needs a prompt and has none."""
    design = config.design
    if routing == "segment" and (problem := segment_problem(config)):
        raise InputError(f"routing=segment: {problem}")
    if routing != "training" and skip == 0 and design.pooled and design.data_dependent:
        raise InputError(f"routing={routing}: the tokens that are skipped are the prompt; skip at least 1")


def _losses(
    model: LoriiniForCausalLM,
    instances: Sequence[Tensor],
    precision: Precision,
    inputs: Mapping[str, Tensor | None],
    routing: EvaluationRouting,
    skip: int,
) -> list[Tensor]:
    """Each instance's losses (l,), in float64 on the CPU. Padding is at the end; processes share rows."""
    ids_BL = pad_sequence([*instances], batch_first=True)
    lengths_B, own = torch.tensor([len(ids) - 1 for ids in instances]), own_rows(len(instances))
    shared = {name: value[own.to(value.device)] for name, value in inputs.items() if value is not None}
    if int(lengths_B.min()) < int(lengths_B.max()):
        real_BL = torch.arange(int(lengths_B.max())) < lengths_B[own, None]
        shared["attention_mask"] = real_BL.long().to(model.device)
    inference = prompt_routing(model, routing, lengths_B[own].clamp(max=max(1, skip)))
    out = score_tokens(model, ids_BL[own], precision, **shared, **inference)
    losses_BL = gather_rows(out.loss, len(instances)).double().cpu()
    return [losses_L[:length] for losses_L, length in zip(losses_BL, lengths_B.tolist(), strict=True)]


def _conditions(config: LoriiniConfig, routing: EvaluationRouting) -> dict[str, Any]:
    """The causality of the predictions that count, and `first_segment` if segments are routed as in training.

    With routing by a prompt, which is skipped, no counted prediction sees a later token.
    """
    design = config.design
    by_prompt = routing == "prompt" and design.causality != "strict"
    conditions: dict[str, Any] = {"causality": "after_prompt" if by_prompt else design.causality}
    if design.segmented and routing == "training":
        conditions["first_segment"] = design.first_segment
    return conditions
