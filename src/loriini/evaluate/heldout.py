"""Held-out text as instances of token ids, by domain."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from loriini.common.errors import InputError
from loriini.data.read.document import Document
from loriini.evaluate.intervals import OVERALL, Documents

AS_IN_TRAINING = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
"""How a tokenizer is called: what spells a special token is text."""


@dataclass(frozen=True)
class HeldOut:
    """A domain's held-out text as instances (n, L+1) of token ids, and their mean number of bytes a token.

    `documents` numbers the document in which each instance begins; empty: each has its own. `positions` (n,
    L+1) are each token's in its piece of a document, for document masking; without them, an instance is one
    piece.
    """

    ids: Tensor
    bytes_per_token: float
    documents: tuple[int, ...] = ()
    positions: Tensor | None = None

    def positions_in(self, document_mask: bool) -> Tensor:
        """Each token's position (n, L+1) in its piece of a document, or in its instance."""
        if document_mask and self.positions is not None:
            return self.positions
        return torch.arange(self.ids.shape[1]).expand_as(self.ids)


def documents_of(heldout: Mapping[str, HeldOut]) -> Documents:
    """By domain, the document in which each instance begins."""
    return {domain: text.documents for domain, text in heldout.items()}


def document_ids(document: Document, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """A document's token ids, as in training."""
    ids: list[int] = tokenizer(document.text, **AS_IN_TRAINING)["input_ids"]
    return ids


def tokenize_by_domain(
    documents: Iterable[Document],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    most: int | None = None,
    label_names: Sequence[str] | None = None,
) -> dict[str, HeldOut]:
    """Concatenate each domain's documents, each ended by EOS, and cut them into instances of `length` + 1.

    A tail shorter than an instance is left out, unless it is all that a domain has. With `most`, a domain has
    at most that many instances, of its first documents. InputError without text, for a domain whose text the
    tokenizer drops, and for a document whose domain is not one of `label_names`, if they are given.
    """
    if tokenizer.eos_token_id is None:
        raise InputError("the tokenizer names no EOS token, which ends every document; add eos_token to it")
    tokens: dict[str, list[int]] = defaultdict(list)
    ends: dict[str, list[int]] = defaultdict(list)
    sizes: dict[str, list[int]] = defaultdict(list)
    for document in documents:
        if label_names is not None:
            check_label(document, label_names)
        if most is not None and len(tokens[document.domain]) >= most * (length + 1):
            continue
        tokens[document.domain] += [*document_ids(document, tokenizer), tokenizer.eos_token_id]
        sizes[document.domain].append(len(document.text.encode()))
        ends[document.domain].append(len(tokens[document.domain]))
    if not tokens:
        raise InputError("there is no held-out document to evaluate on")
    check_tokens({domain: len(ids) > len(ends[domain]) for domain, ids in tokens.items()})
    heldout = {}
    for domain, ids in sorted(tokens.items()):
        instances = _cut(torch.tensor(ids), length)[:most]
        places_NL = np.arange(instances.numel()).reshape(instances.shape)
        of_document_NL = np.searchsorted(ends[domain], places_NL, side="right")
        begins_NL = np.maximum(np.array([0, *ends[domain]])[of_document_NL], places_NL[:, :1])
        whole = bisect_right(ends[domain], instances.numel())  # documents; the next one may be cut
        cut = tokenizer.decode(ids[[0, *ends[domain]][whole] : instances.numel()])
        size = sum(sizes[domain][:whole]) + len(cut.encode())
        heldout[domain] = HeldOut(
            instances,
            size / instances.numel(),
            tuple(of_document_NL[:, 0].tolist()),
            torch.from_numpy(places_NL - begins_NL),
        )
    return heldout


def check_tokens(known: Mapping[str, bool]) -> None:
    """InputError for a domain of whose text the tokenizer makes no token; `known` says of which it does."""
    if unknown := [domain for domain, has_tokens in known.items() if not has_tokens]:
        raise InputError(
            f"domain {unknown[0]!r}: the tokenizer makes no token of its text; leave the domain out"
        )


def _cut(ids: Tensor, length: int) -> Tensor:
    instances = len(ids) // (length + 1)
    return ids[: instances * (length + 1)].view(instances, length + 1) if instances else ids[None]


def check_label(document: Document, label_names: Sequence[str]) -> None:
    """InputError for a document whose domain is not one of the labels."""
    if document.domain not in label_names:
        raise InputError(
            f"document {document.id}: its domain {document.domain!r} is not a label to route by; "
            f"leave it out, or give it one of: {', '.join(label_names)}"
        )


def check_domains(domains: Collection[str]) -> None:
    """InputError if one of several domains has the name of what is measured over all of them."""
    if len(domains) > 1 and OVERALL in domains:
        raise InputError(
            f"held-out text: a domain is called {OVERALL!r}, the name of what is measured over all domains; "
            "give it another by NAME=PATH, the file's name or --domain-field"
        )


def check_lengths(
    heldout: Mapping[str, HeldOut],
    skip: int,
    document_mask: bool = False,
    remedy: str = "lower --skip, raise --length",
) -> None:
    """InputError for a domain whose instances, or documents, are too short to skip `skip` predictions."""
    for domain, text in heldout.items():
        longest = int(text.positions_in(document_mask)[:, :-1].max()) + 1
        if longest <= skip:
            raise InputError(
                f"domain {domain!r}: its longest text is of {longest} predicted tokens, and the first {skip} "
                f"are skipped; {remedy}, give it longer held-out text, or leave it out"
            )


def heldout_digest(heldout: Mapping[str, HeldOut]) -> str:
    """A digest of the domains' names and tokens."""
    digest = sha256()
    for name, text in sorted(heldout.items()):
        digest.update(f"{name} {tuple(text.ids.shape)} ".encode() + text.ids.numpy().tobytes())
    return digest.hexdigest()
