"""The text of a reproduction: documents gathered once, corpora and held-out files made when needed."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path

from loriini.common.errors import InputError
from loriini.common.grouping import grouped
from loriini.data.jobs.lock import folder_lock
from loriini.data.prepare.corpus import open_corpus
from loriini.data.prepare.prepare import prepare_documents
from loriini.data.prepare.settings import OrderMethod, PrepareSettings
from loriini.data.prepare.text.documents import write_lines
from loriini.data.read.document import Document
from loriini.data.read.inputs import input_identity
from loriini.data.read.local_text import collect_local_text
from loriini.data.read.names import HELDOUT, TRAIN
from loriini.data.read.read import read_documents
from loriini.data.read.records import OnError, ReadOptions
from loriini.data.read.split import split_documents
from loriini.evaluate.heldout import HeldOut, tokenize_by_domain
from loriini.model.weights.loading import tokenizer_in
from loriini.papers.reproduce.scales import Scale
from loriini.train.config import TrainConfig

MIXED, SHORT, LANGUAGES, WEB = "mixed", "short-documents", "languages", "web"
KINDS = {
    "Common Crawl": MIXED,
    "RedPajama": MIXED,
    "several corpora, after Llama 2": MIXED,
    "MultiWiki": LANGUAGES,
    "OpenWebText": WEB,
}
"""Training text of a paper → the kind of text that stands for it."""
LANGUAGE_PREFIX = "multi"
WEB_DOMAINS = ("web", "prose")
MOST_DOMAINS = 32
HELDOUT_PART = 10
"""1 / HELDOUT_PART of the characters is held out."""


@dataclass(frozen=True)
class Texts:
    """Corpora in `folder`, made of documents of `source`, by default text that is on this machine."""

    folder: Path
    scale: Scale
    source: tuple[str, ...] = ()
    workers: int = 1
    on_error: OnError = "stop"
    tokenized: dict[tuple[str, Path], dict[str, HeldOut]] = field(default_factory=dict, init=False)
    """Cache of `instances`, by its arguments."""

    @cached_property
    def identity(self) -> dict[str, str]:
        """What distinguishes the source from others. InputError for a missing path."""
        return input_identity(self.source)

    @cached_property
    def by_domain(self) -> dict[str, dict[str, list[Document]]]:
        """All documents by side, for training or held out, and by domain."""
        if self.source:
            most = MOST_DOMAINS * self.scale.characters  # kinds have budgets of their own
            options = ReadOptions(on_error=self.on_error)
            sides = split_documents(self.source, most, most // HELDOUT_PART, options)
        else:
            sides = collect_local_text()
        return {side: grouped(documents, attrgetter("domain")) for side, documents in sides.items()}

    def domains(self, kind: str) -> list[str]:
        """The domains of a kind of text.

        Languages are the domains `multi…`, or all where there are fewer than two; web text is the domain
        `web` or `prose`, or all; the rest is mixed text. Short documents are those of mixed text's domains
        with enough of them: one with a handful would weigh as much as the others in every mean over domains.
        """
        all_domains = sorted(self.by_domain[TRAIN])
        languages = [domain for domain in all_domains if domain.startswith(LANGUAGE_PREFIX)]
        if kind == LANGUAGES:
            return languages if len(languages) > 1 else all_domains
        if kind == WEB:
            return [domain for domain in all_domains if domain in WEB_DOMAINS] or all_domains
        mixed = [domain for domain in all_domains if domain not in languages] or all_domains
        return self._plentiful(mixed) if kind == SHORT else mixed

    def _plentiful(self, domains: list[str]) -> list[str]:
        """The domains whose short documents fill at least half of their share; all, if none does."""
        half = {side: self._share(side, len(domains)) / 2 for side in (TRAIN, HELDOUT)}

        def fills_half(domain: str, side: str) -> bool:
            chosen = self._of_domain(SHORT, side, domain, len(domains))
            return sum(len(document.text) for document in chosen) >= half[side]

        return [name for name in domains if all(fills_half(name, side) for side in half)] or domains

    def _share(self, side: str, domains: int) -> int:
        """Characters of each domain if there are `domains` of them."""
        return self.scale.characters // (1 if side == TRAIN else HELDOUT_PART) // domains

    def _of_domain(self, kind: str, side: str, domain: str, domains: int) -> list[Document]:
        """The documents of a domain, up to its share of the characters among `domains` domains."""
        left = self._share(side, domains)
        most = self.scale.short if kind == SHORT else None
        chosen = []
        for document in self.by_domain[side].get(domain, ()):
            if left > 0 and (most is None or len(document.text) <= most):
                left -= len(document.text)
                chosen.append(document)
        return chosen

    def documents(self, kind: str, side: str) -> list[Document]:
        """The documents of a side, the same number of characters from each domain where there are enough."""
        domains = self.domains(kind)
        chosen = [
            document for domain in domains for document in self._of_domain(kind, side, domain, len(domains))
        ]
        if not chosen:
            raise InputError(f"--text: no {side} document of {kind} text is left; give more text")
        return chosen

    def corpus(self, kind: str, order: OrderMethod, length: int, vocabulary: int) -> Path:
        """The prepared corpus of a kind of text; tokenizer and documents are the same in both orders."""
        out = self.folder / f"{kind}-{order}-{length}"
        settings = PrepareSettings(
            tokenizer=f"bpe:{vocabulary}", length=length, order=order, workers=self.workers
        )
        identity = {**self.identity, "kind": kind, "scale": self.scale.name}
        with folder_lock(self.folder, wait=True):
            prepare_documents(out, lambda drop: self.documents(kind, TRAIN), identity, settings)
        return out.resolve()

    def heldout(self, kind: str) -> Path:
        """The held-out documents of a kind of text as JSON lines."""
        path = self.folder / f"{kind}.heldout.jsonl"
        with folder_lock(self.folder, wait=True):
            if not path.exists():
                write_lines(path, self.documents(kind, HELDOUT))
        return path

    def instances(self, kind: str, corpus: Path) -> dict[str, HeldOut]:
        """A kind's held-out text by domain, in the tokens of a corpus, which may be of another kind.

        Its instances are as long as the corpus's.
        """
        key = (kind, corpus)
        if key not in self.tokenized:
            documents = read_documents((str(self.heldout(kind)),))
            opened, most = open_corpus(corpus), self.scale.instances
            tokenizer, length = tokenizer_in(opened.tokenizer), opened.instances.length
            # as the papers' models were trained; passages of questions are as long as instances
            self.tokenized[key] = tokenize_by_domain(documents, tokenizer, length, most, contexts="strung")
        return self.tokenized[key]

    def with_corpus(self, run: TrainConfig, kind: str) -> TrainConfig:
        """A run with a corpus of its length and vocabulary, in the run's order, or random if it has none.

        A run that is routed by label gets an expert for each of the corpus's domains.
        """
        corpus = self.corpus(kind, run.order or "random", run.length, self.scale.vocabulary(run))
        if run.routing.scorer == "label" and run.is_mixture:
            names = open_corpus(corpus).instances.label_names
            run = replace(run, model=replace(run.model, num_experts=len(names)))
        return replace(run, corpus=(corpus,))
