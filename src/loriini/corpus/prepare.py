"""Raw documents → a corpus to train on: every stage of this package, one after the other.

A corpus is a folder of finished stages, `documents tokenizer tokens [embeddings neighbors duplicates] order
instances`, and a manifest of them all, written last. A stage that is finished is not done again; of one that
was interrupted, the tasks that are finished are not.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.atomic import write_json
from loriini.corpus.accounts import check_accounts
from loriini.corpus.documents import write_documents
from loriini.corpus.duplicates import write_duplicates
from loriini.corpus.embeddings import BACKENDS, POOLINGS, Backend, Pooling, check_encoder, write_embeddings
from loriini.corpus.instances import (
    Instances,
    check_enough,
    cut,
    open_instances,
    shared_instance_cosine,
    write_instances,
)
from loriini.corpus.neighbors import write_neighbors
from loriini.corpus.order import METHODS, Method, random_order, window_for, write_order
from loriini.corpus.tokens import Tokens, check_tokenizer, open_tokens, write_tokenizer, write_tokens
from loriini.errors import InputError
from loriini.jobs.artifact import MANIFEST, Artifact, load_artifact
from loriini.jobs.executors import ExecutorName, make_executor
from loriini.jobs.lock import folder_lock
from loriini.sources import ON_ERROR, Fields, OnError, ReadOptions
from loriini.sources.streams import DocumentStream, ReadDocuments, open_streams

PLACE = ("workers", "executor", "executor_options")
"""The settings that say where and how fast, not what."""
SEEDS = 1 << 31
"""A seed must be less: FAISS takes no other."""


@dataclass(frozen=True)
class PrepareSettings:
    """What makes a corpus. InputError for a value that cannot be.

    All but those in PLACE decide its contents.
    """

    documents: tuple[str, ...] = ()
    """What to read, each `[NAME=]PATH[:WEIGHT]`: see `readers.read_documents`."""
    text_field: str = "text"
    id_field: str = "id"
    domain_field: str = "domain"
    on_error: OnError = "stop"
    min_characters: int = 0
    """Leave out shorter documents."""
    max_document_characters: int | None = None
    """Leave out longer documents; None leaves out none."""
    tokenizer: str = "bpe:8192"
    """`bpe:SIZE` to train one on the documents, or the path of one."""
    length: int = 1024
    """Tokens predicted in an instance; it holds one more."""
    order: Method = "similar"
    encoder: str = "lsa"
    """`lsa`, or the path or name of a sentence-transformers or Hugging Face encoder."""
    pooling: Pooling = "mean"
    encoder_backend: Backend = "torch"
    neighbors: int = 50
    seed: int = 0
    workers: int = 1
    """Tasks that are done at once, each on one thread."""
    executor: ExecutorName = "local"
    """Where tasks are done: see `loriini.jobs.executors`."""
    executor_options: tuple[str, ...] = ()
    """`KEY=VALUE` each: of Slurm's or Ray's executor."""

    def __post_init__(self) -> None:
        # now, rather than when the stage that needs it begins, hours later
        at_least = {"length": 1, "neighbors": 1, "workers": 1, "seed": 0}
        at_least |= {"min_characters": 0, "max_document_characters": 1}
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} is {value}; it must be at least {least}")
        if self.seed >= SEEDS:
            raise InputError(f"seed is {self.seed}; it must be less than {SEEDS}")
        choices = {
            "order": METHODS,
            "on_error": ON_ERROR,
            "pooling": POOLINGS,
            "encoder_backend": BACKENDS,
        }
        for name, known in choices.items():
            value = getattr(self, name)
            if value not in known:
                raise InputError(f"{name} {value!r} is unknown; choose one of: {', '.join(known)}")
        make_executor(self.executor, self.workers, self.executor_options)


@dataclass(frozen=True)
class Corpus:
    """A finished corpus, mapped from disk."""

    folder: Path
    instances: Instances
    tokens: Tokens
    tokenizer: Path
    """The folder of the tokenizer, for `transformers.AutoTokenizer`."""
    manifest: dict[str, Any]


def prepare(out: Path, settings: PrepareSettings) -> Corpus:
    """Read the documents of `settings` and make the corpus `out`, or return it if it is finished.

    Raises InputError for wrong documents or settings, when `out` was made with others, and while another
    process makes it.
    """
    if not settings.documents:
        raise InputError("there is nothing to read; give documents, a file, a folder or a URL")
    streams, identity = open_streams(settings.documents, out, _reading(settings))
    return prepare_documents(out, streams, identity, settings)


def prepare_documents(
    out: Path,
    documents: ReadDocuments | Sequence[DocumentStream],
    identity: Mapping[str, str],
    settings: PrepareSettings,
    tokenizer_from: Path | None = None,
) -> Corpus:
    """As `prepare`, with documents from anywhere.

    Args:
        out: the corpus's folder.
        documents: makes the documents, and tells its argument what it leaves out; called only when they are
            not stored yet. Or streams, each of which a task reads.
        identity: names and hashes that stand for them: another identity is another corpus.
        settings: the rest.
        tokenizer_from: a tokenizer's folder to take in place of the settings' tokenizer, such as another
            corpus's.
    """
    if tokenizer_from is not None:
        settings = replace(settings, tokenizer=str(tokenizer_from))
    # now, rather than when their stages begin, hours later
    check_tokenizer(settings.tokenizer)
    check_encoder(settings.encoder, settings.encoder_backend)
    out.mkdir(parents=True, exist_ok=True)
    with folder_lock(out):
        stages = _run_stages(out, documents, identity, settings)
        check_accounts(stages)
        made = manifest_of({k: v for k, v in asdict(settings).items() if k not in PLACE}, stages)
        there = _read_manifest(out) or {}
        if {key: there.get(key) for key in made} != made:
            cosines = _order_cosines(out, settings.order, settings.seed)
            known = {order: None if math.isnan(cosine) else cosine for order, cosine in cosines.items()}
            write_json(out / MANIFEST, {**made, "shared_instance_cosine": known})
    return open_corpus(out)


def manifest_of(settings: Mapping[str, Any], stages: Mapping[str, Artifact]) -> dict[str, Any]:
    """What a corpus's manifest tells of how it was made, as its JSON reads."""
    told = {name: {"counts": stage.counts, "files": stage.files} for name, stage in stages.items()}
    made: dict[str, Any] = json.loads(json.dumps({"settings": settings, "stages": told}))
    return made


def open_corpus(out: Path) -> Corpus:
    """Open a finished corpus; InputError when it is absent or unfinished."""
    manifest = _read_manifest(out)
    if manifest is None:
        raise InputError(
            f"{out}: no finished corpus here ({MANIFEST} is absent); run `loriini prepare` on it"
        )
    return Corpus(
        out,
        open_instances(load_artifact(out / "instances")),
        open_tokens(load_artifact(out / "tokens")),
        out / "tokenizer",
        manifest,
    )


def order_cosines(corpus: Corpus) -> dict[str, float]:
    """Mean cosine between documents that share an instance: {"random": x, the corpus's own order: y}.

    The random order has the same documents; its instances are only reckoned, not written. See
    `shared_instance_cosine`.
    """
    settings = corpus.manifest["settings"]
    return _order_cosines(corpus.folder, settings["order"], settings["seed"])


def _reading(settings: PrepareSettings) -> ReadOptions:
    """How the settings have documents read."""
    return ReadOptions(
        Fields(settings.text_field, settings.id_field, settings.domain_field),
        settings.on_error,
        min_characters=settings.min_characters,
        max_document_characters=settings.max_document_characters,
    )


def _run_stages(
    out: Path,
    documents: ReadDocuments | Sequence[DocumentStream],
    identity: Mapping[str, str],
    settings: PrepareSettings,
) -> dict[str, Artifact]:
    """Every stage's artefact by name, in the order they were made."""
    reading = (
        *("documents", "text_field", "id_field", "domain_field", "on_error"),
        *("min_characters", "max_document_characters"),
    )
    read_settings = {name: getattr(settings, name) for name in reading}
    execute = make_executor(settings.executor, settings.workers, settings.executor_options)
    seed = settings.seed
    stages: dict[str, Artifact] = {}
    stages["documents"] = stored = write_documents(
        out / "documents", documents, read_settings, identity, execute
    )
    stages["tokenizer"] = write_tokenizer(out / "tokenizer", settings.tokenizer, stored)
    stages["tokens"] = write_tokens(out / "tokens", stored, stages["tokenizer"], execute)
    check_enough(stages["tokens"], stages["tokens"].counts["tokens"], settings.length)
    stages["embeddings"] = write_embeddings(
        out / "embeddings",
        stored,
        settings.encoder,
        seed,
        execute,
        settings.pooling,
        settings.encoder_backend,
    )
    stages["neighbors"] = write_neighbors(
        out / "neighbors", stages["embeddings"], settings.neighbors, seed, execute
    )
    stages["duplicates"] = write_duplicates(out / "duplicates", stored, stages["neighbors"], execute=execute)
    stages["order"] = write_order(
        out / "order",
        stages["neighbors"],
        stored.counts["documents"],
        settings.order,
        seed,
        stages["duplicates"],
        window_for(settings.length * stored.counts["documents"] / stages["tokens"].counts["tokens"]),
    )
    stages["instances"] = write_instances(
        out / "instances", stages["tokens"], stages["order"], settings.length, execute
    )
    return stages


def _order_cosines(out: Path, order: str, seed: int) -> dict[str, float]:
    vectors_ND: NDArray[np.float16] = np.load(
        load_artifact(out / "embeddings").path("embeddings.npy"), mmap_mode="r"
    )
    left_out = np.load(load_artifact(out / "duplicates").path("ids.npy"))
    instances = open_instances(load_artifact(out / "instances"))
    offsets = open_tokens(load_artifact(out / "tokens")).offsets
    shuffled = cut(offsets, random_order(len(vectors_ND), seed, left_out), instances.length + 1)
    return {
        "random": shared_instance_cosine(shuffled, vectors_ND),
        order: shared_instance_cosine(instances.pieces, vectors_ND),
    }


def _read_manifest(out: Path) -> dict[str, Any] | None:
    """The corpus's manifest, None when there is none; InputError when it is no JSON."""
    try:
        return json.loads((out / MANIFEST).read_text())
    except FileNotFoundError:
        return None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{out / MANIFEST}: not a readable manifest ({error}); remove it and rerun"
        ) from None
