"""Perplexity on held-out text, per domain, with and without the tokens of segment 1."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerBase

from loriini.errors import InputError
from loriini.hardware import autocast
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.labels import labels_of
from loriini.progress import progress
from loriini.sources.document import Document


@dataclass(frozen=True)
class HeldOut:
    """A domain's held-out text as instances (n, L+1) of token ids, and how many bytes a token stands for."""

    ids: Tensor
    bytes_per_token: float


def tokenize_by_domain(
    documents: Iterable[Document],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    most: int | None = None,
    label_names: Sequence[str] | None = None,
) -> dict[str, HeldOut]:
    """Concatenate each domain's documents, each ended by EOS, and cut them into instances of `length` + 1.

    A domain's tail shorter than an instance is left out, unless it is all there is. With `most`, documents
    are read until a domain has that many instances. InputError without text, and for a document whose domain
    is not one of `label_names`, where those are given.
    """
    tokens: dict[str, list[int]] = defaultdict(list)
    size: dict[str, int] = defaultdict(int)
    for document in documents:
        if label_names is not None:
            check_label(document, label_names)
        if most is not None and len(tokens[document.domain]) >= most * (length + 1):
            continue
        ids = tokenizer(document.text, add_special_tokens=False, verbose=False)["input_ids"]
        tokens[document.domain] += [*ids, tokenizer.eos_token_id]
        size[document.domain] += len(document.text.encode())
    if not tokens:
        raise InputError("there is no held-out document to evaluate on")
    return {
        domain: HeldOut(_cut(torch.tensor(ids), length), size[domain] / len(ids))
        for domain, ids in sorted(tokens.items())
    }


def check_label(document: Document, label_names: Sequence[str]) -> None:
    """InputError for a document whose domain is not one of the labels."""
    if document.domain not in label_names:
        raise InputError(
            f"document {document.id}: its domain {document.domain!r} is not a label to route by; "
            f"leave it out, or give it one of: {', '.join(label_names)}"
        )


def _cut(ids: Tensor, length: int) -> Tensor:
    instances = len(ids) // (length + 1)
    return ids[: instances * (length + 1)].view(instances, length + 1) if instances else ids[None]


def first_segment(config: LoriiniConfig) -> int:
    """Tokens at the start of an instance that may have seen their own future: segment 1's, or none."""
    return config.routing.segment_length if config.num_experts > 1 and config.routing.segmented else 0


def check_lengths(heldout: Mapping[str, HeldOut], skip: int) -> None:
    """InputError for a domain whose instances have no prediction after the first `skip`."""
    for domain, text in heldout.items():
        length = text.ids.shape[1] - 1
        if length <= skip:
            raise InputError(
                f"domain {domain!r} has instances of {length} predicted tokens, none of them after "
                f"segment 1 ({skip}); give it more held-out text"
            )


@torch.no_grad()
def evaluate(
    model: LoriiniForCausalLM,
    heldout: Mapping[str, HeldOut],
    skip: int | None = None,
    batch_size: int = 16,
    precision: str = "auto",
    shown: bool = True,
) -> dict[str, Any]:
    """The contract's evaluation: domain → value for each of its measures.

    `perplexity` leaves out the first `skip` predictions of every instance (by default the model's own segment
    1; give the same `skip` to models that are compared), `perplexity_all` and `bits_per_byte` count all.
    `tokens` is how many `perplexity` counts. InputError for a domain that is too short, and for one that a
    label-routed model does not know.
    """
    skip = first_segment(model.config) if skip is None else skip
    check_lengths(heldout, skip)
    results: dict[str, dict[str, float]] = defaultdict(dict)
    with progress("evaluation", sum(len(h.ids) for h in heldout.values()), shown) as advance:
        for domain, text in heldout.items():
            instances, length = text.ids.shape[0], text.ids.shape[1] - 1
            later = total = 0.0
            for ids in text.ids.split(batch_size):
                labels_B = labels_of(model, domain, len(ids))
                loss_BL = token_losses(model, ids.to(model.device), precision, labels_B)
                total += loss_BL.sum().item()
                later += loss_BL[:, skip:].sum().item()
                advance(len(ids), domain)
            results["perplexity"][domain] = math.exp(later / (instances * (length - skip)))
            results["perplexity_all"][domain] = math.exp(total / (instances * length))
            results["bits_per_byte"][domain] = (
                total / (instances * length) / text.bytes_per_token / math.log(2)
            )
            results["tokens"][domain] = instances * (length - skip)
    return {
        **results,
        "skip": skip,
        "causality": model.config.routing.causality if model.config.num_experts > 1 else "strict",
    }


def token_losses(
    model: LoriiniForCausalLM, ids_BL: Tensor, precision: str = "auto", labels_B: Tensor | None = None
) -> Tensor:
    """Cross-entropy (B, L) in nats of each next token of instances (B, L+1), routed by labels (B,) if any."""
    model.eval()
    with autocast(precision):
        logits = model(ids_BL[:, :-1], routing_labels=labels_B).logits
    return cross_entropy(logits.float().flatten(0, 1), ids_BL[:, 1:].flatten(), reduction="none").view_as(
        ids_BL[:, 1:]
    )
