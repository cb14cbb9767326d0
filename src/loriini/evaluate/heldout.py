"""Held-out text as instances of token ids, by domain."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from loriini.common.errors import InputError
from loriini.data.read.document import Contexts, Document
from loriini.evaluate.intervals import OVERALL, Documents

AS_IN_TRAINING = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
"""Arguments of a tokenizer's call, as in training: text that spells a special token stays text."""


@dataclass(frozen=True)
class HeldOut:
    """A domain's held-out text as instances (l+1,) of token ids, and its mean number of bytes per token.

    `tokenize_by_domain` puts the longest instances first. `documents[i]` is the number of the document in
    which instance i begins; if empty, every instance is a document.
    """

    instances: Sequence[Tensor]
    bytes_per_token: float
    documents: tuple[int, ...] = ()

    def counted_documents(self, skip: int = 0) -> int:
        """How many documents have at least one instance of more than `skip` predictions."""
        documents = self.documents or range(len(self.instances))
        pairs = zip(documents, self.instances, strict=True)
        return len({document for document, ids in pairs if len(ids) > skip + 1})

    def too_short(self, skip: int) -> int:
        """How many documents have only instances of at most `skip` predictions."""
        return self.counted_documents() - self.counted_documents(skip)


def documents_of(heldout: Mapping[str, HeldOut]) -> Documents:
    """Domain → the number of the document in which each instance begins (`HeldOut.documents`)."""
    return {domain: text.documents for domain, text in heldout.items()}


def tokenize_by_domain(
    documents: Iterable[Document],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    most: int | None = None,
    label_names: Sequence[str] | None = None,
    contexts: Contexts = "documents",
) -> dict[str, HeldOut]:
    """Tokenize each domain's documents, each ended by EOS, into instances of at most `length` predictions.

    Contexts `documents`: an instance is a document, or a window of a longer one. `strung`: documents are
    concatenated and cut into whole instances; the rest is dropped, unless the domain has nothing else. `most`
    limits the instances of a domain, which are then of its first documents. InputError without documents, for
    a tokenizer without EOS, for a domain whose text gives no tokens, and for a document whose domain is not
    in `label_names`, if given.
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
        ids = tokenizer(document.text, **AS_IN_TRAINING)["input_ids"]
        tokens[document.domain] += [*ids, tokenizer.eos_token_id]
        sizes[document.domain].append(len(document.text.encode()))
        ends[document.domain].append(len(tokens[document.domain]))
    if not tokens:
        raise InputError("there is no held-out document to evaluate on")
    if unknown := [domain for domain, ids in tokens.items() if len(ids) == len(ends[domain])]:
        raise InputError(
            f"domain {unknown[0]!r}: the tokenizer makes no token of its text; leave the domain out"
        )
    heldout = {}
    for domain, ids in sorted(tokens.items()):
        spans = (_windows if contexts == "documents" else _strung)(ends[domain], length)[:most]
        stop = spans[-1].stop
        whole = bisect_right(ends[domain], stop)  # documents; the next one may be cut
        cut = tokenizer.decode(ids[[0, *ends[domain]][whole] : stop])
        size = sum(sizes[domain][:whole]) + len(cut.encode())
        spans.sort(key=len, reverse=True)  # so that a batch pads little
        heldout[domain] = HeldOut(
            [torch.tensor(ids[span.start : span.stop]) for span in spans],
            size / stop,
            tuple(bisect_right(ends[domain], span.start) for span in spans),
        )
    return heldout


def _windows(ends: Sequence[int], length: int) -> list[range]:
    """The spans of each document; a long one is cut so that every token but its first is predicted once."""
    return [
        range(start, min(start + length + 1, end))
        for begin, end in pairwise([0, *ends])
        for start in range(begin, end - 1, length)
    ]


def _strung(ends: Sequence[int], length: int) -> list[range]:
    """The spans of whole instances in all documents together; if there is none, one span of everything."""
    starts = range(0, ends[-1] - length, length + 1)
    return [range(start, start + length + 1) for start in starts] or [range(ends[-1])]


def check_label(document: Document, label_names: Sequence[str]) -> None:
    """InputError for a document whose domain is not one of the labels."""
    if document.domain not in label_names:
        raise InputError(
            f"document {document.id}: its domain {document.domain!r} is not a label to route by; "
            f"leave it out, or give it one of: {', '.join(label_names)}"
        )


def check_domains(domains: Collection[str]) -> None:
    """InputError if one of several domains is called `all`, the name of results over all domains."""
    if len(domains) > 1 and OVERALL in domains:
        raise InputError(
            f"held-out text: a domain is called {OVERALL!r}, the name of what is measured over all domains; "
            "give it another by NAME=PATH, the file's name or --domain-field"
        )


def check_lengths(
    heldout: Mapping[str, HeldOut], skip: int, remedy: str = "lower --skip, choose --contexts strung"
) -> None:
    """InputError for a domain none of whose instances has more than `skip` predictions."""
    for domain, text in heldout.items():
        if (longest := max(map(len, text.instances)) - 1) <= skip:
            raise InputError(
                f"domain {domain!r}: its longest text is of {longest} predicted tokens, and the first {skip} "
                f"are skipped; {remedy}, give it longer held-out text, or leave it out"
            )


def heldout_digest(heldout: Mapping[str, HeldOut]) -> str:
    """A digest of the domains' names and tokens."""
    digest = sha256()
    for name, text in sorted(heldout.items()):
        digest.update(f"{name} {[*map(len, text.instances)]} ".encode())
        for ids in text.instances:
            digest.update(ids.numpy().tobytes())
    return digest.hexdigest()
