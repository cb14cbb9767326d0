"""The stages of a corpus in one table: what each needs, how it is built, which counts must agree.

`prepare` builds them in this order; `verify` checks their files, inputs and counts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loriini.common.errors import InputError
from loriini.common.progress import announce, inform
from loriini.data.jobs.artifact import MANIFEST, Artifact, OtherContents, link_artifact
from loriini.data.jobs.tasks import Executor
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.prepare.similarity.embeddings import write_embeddings
from loriini.data.prepare.similarity.neighbors import write_neighbors
from loriini.data.prepare.similarity.order import window_for, write_order
from loriini.data.prepare.text.documents import write_documents
from loriini.data.prepare.text.duplicates import write_duplicates
from loriini.data.prepare.text.heldout import write_heldout
from loriini.data.prepare.tokenized.instances import check_enough, write_instances
from loriini.data.prepare.tokenized.tokenizer import write_tokenizer
from loriini.data.prepare.tokenized.tokens import write_tokens
from loriini.data.read.streams import DocumentStream, ReadDocuments

READ_SETTINGS = (
    "documents",
    "text_field",
    "id_field",
    "domain_field",
    "on_error",
    "min_characters",
    "max_document_characters",
)


@dataclass(frozen=True)
class Preparation:
    """What a corpus is made from.

    `documents` are streams, each read by a task, or a function that yields them all; `identity` names and
    hashes them.
    """

    documents: ReadDocuments | Iterable[DocumentStream]
    identity: Mapping[str, str]
    settings: PrepareSettings
    execute: Executor


@dataclass(frozen=True)
class Stage:
    """A folder of a corpus, built from the artifacts of the stages that it `needs`.

    `build` takes the folder, the preparation and those artifacts.
    """

    name: str
    needs: tuple[str, ...]
    build: Callable[..., Artifact]


def _documents(folder: Path, given: Preparation) -> Artifact:
    s = given.settings
    settings = {name: getattr(s, name) for name in READ_SETTINGS}
    return write_documents(folder, given.documents, settings, given.identity, given.execute)


def _tokenizer(folder: Path, given: Preparation, documents: Artifact) -> Artifact:
    return write_tokenizer(folder, given.settings.tokenizer, documents, given.settings.heldout_share)


def _tokens(folder: Path, given: Preparation, documents: Artifact, tokenizer: Artifact) -> Artifact:
    tokens = write_tokens(folder, documents, tokenizer, given.execute)
    check_enough(tokens, tokens.counts["tokens"], given.settings.length)  # before hours of embedding
    return tokens


def _embeddings(folder: Path, given: Preparation, documents: Artifact) -> Artifact:
    s = given.settings
    return write_embeddings(folder, documents, s.encoder, s.seed, s.pooling, given.execute)


def _neighbors(folder: Path, given: Preparation, embeddings: Artifact) -> Artifact:
    s = given.settings
    return write_neighbors(folder, embeddings, s.neighbors, s.seed, given.execute)


def _duplicates(folder: Path, given: Preparation, documents: Artifact, neighbors: Artifact) -> Artifact:
    return write_duplicates(folder, documents, neighbors, given.execute)


def _heldout(folder: Path, given: Preparation, documents: Artifact, duplicates: Artifact) -> Artifact:
    return write_heldout(folder, documents, duplicates, given.settings.heldout_share, given.execute)


def _order(
    folder: Path,
    given: Preparation,
    tokens: Artifact,
    neighbors: Artifact,
    duplicates: Artifact,
    heldout: Artifact,
) -> Artifact:
    s = given.settings
    window = window_for(s.length * tokens.counts["documents"] / tokens.counts["tokens"])
    return write_order(folder, neighbors, duplicates, heldout, s.order, s.seed, window)


def _instances(folder: Path, given: Preparation, tokens: Artifact, order: Artifact) -> Artifact:
    return write_instances(folder, tokens, order, given.settings.length, given.execute)


STAGES = (
    Stage("documents", (), _documents),
    Stage("tokenizer", ("documents",), _tokenizer),
    Stage("tokens", ("documents", "tokenizer"), _tokens),
    Stage("embeddings", ("documents",), _embeddings),
    Stage("neighbors", ("embeddings",), _neighbors),
    Stage("duplicates", ("documents", "neighbors"), _duplicates),
    Stage("heldout", ("documents", "duplicates"), _heldout),
    Stage("order", ("tokens", "neighbors", "duplicates", "heldout"), _order),
    Stage("instances", ("tokens", "order"), _instances),
)
BALANCES = (
    ("documents", "documents.documents_in", ("documents.documents", "documents.duplicates")),
    ("documents", "documents.documents", ("documents.shards",)),
    ("tokens", "documents.documents", ("tokens.documents",)),
    ("tokens", "documents.characters", ("tokens.characters_in",)),
    ("embeddings", "documents.documents", ("embeddings.documents",)),
    ("neighbors", "documents.documents", ("neighbors.documents",)),
    ("order", "documents.documents", ("order.documents", "duplicates.duplicates", "heldout.documents")),
    ("instances", "order.documents", ("instances.documents_in",)),
    (
        "instances",
        "tokens.tokens",
        ("instances.tokens", "instances.tokens_left_out", "duplicates.tokens", "heldout.tokens"),
    ),
)
"""A stage, and a count that must be the sum of others, each named `STAGE.COUNT`."""


def build_stages(out: Path, given: Preparation) -> dict[str, Artifact]:
    """Build every stage below `out` that is not finished; returns their artifacts by name.

    Raises ValueError where counts do not add up: a document or token was lost, or a manifest is damaged.
    """
    built: dict[str, Artifact] = {}
    for stage in STAGES:
        needed = (built[name] for name in stage.needs)
        built[stage.name] = _build(stage, out / stage.name, given, list(needed))
    for _, message in imbalances(built):
        raise ValueError(message)
    return built


def _build(stage: Stage, folder: Path, given: Preparation, needed: Sequence[Artifact]) -> Artifact:
    """Build a stage, or take it from the corpus to reuse, and report it; a finished one is loaded."""
    if (folder / MANIFEST).exists():
        try:
            return stage.build(folder, given, *needed)
        except OtherContents as other:  # as have the stages that depend on it, so removing one does not help
            corpus = folder.parent
            remove = "" if (corpus / MANIFEST).exists() else f", or remove {corpus}, which is not finished"
            raise InputError(
                f"{folder}: was made with {other.how}; choose another name or --out "
                f"(`prepare --reuse {corpus}` keeps what they do not change){remove}"
            ) from other
    announce(stage.name, [stage.name for stage in STAGES], "corpus stage")
    if reused := _reused(stage, folder, given, needed):
        return reused
    return stage.build(folder, given, *needed)


def _reused(stage: Stage, folder: Path, given: Preparation, needed: Sequence[Artifact]) -> Artifact | None:
    """The stage of the corpus to reuse, linked to `folder`; None if it is absent or would differ."""
    if not given.settings.reuse:
        return None
    earlier = Path(given.settings.reuse)
    if not (earlier / stage.name / MANIFEST).exists():
        return None
    try:
        finished = stage.build(earlier / stage.name, given, *needed)
    except OtherContents as other:
        inform(f"{stage.name}: made anew; that of {earlier} has {other.how}")
        return None
    inform(f"{stage.name}: taken from {earlier}")
    return link_artifact(finished, folder)


def imbalances(artifacts: Mapping[str, Artifact]) -> Iterator[tuple[str, str]]:
    """Stages whose counts do not add up, each with a message; absent counts are not compared."""
    counts = _counts(artifacts)
    for stage, total, parts in BALANCES:
        added = sum(counts.get(part, 0) for part in parts)
        if stage in artifacts and counts.get(total, added) != added:
            yield stage, f"{total} is {counts[total]:,}, but {' + '.join(parts)} is {added:,}"


def _counts(artifacts: Mapping[str, Artifact]) -> dict[str, int]:
    """Every number that artifacts count, as `STAGE.COUNT`, and the tokens of documents that are left out."""
    counts = {
        f"{stage}.{name}": sum(value) if name == "shards" else value
        for stage, artifact in artifacts.items()
        for name, value in artifact.counts.items()
        if isinstance(value, int) or name == "shards"
    }
    if "tokens" in artifacts:
        offsets = artifacts["tokens"].array("offsets.npy")
        for stage in {"duplicates", "heldout"} & artifacts.keys():
            ids = artifacts[stage].array("ids.npy")
            counts[f"{stage}.tokens"] = int((offsets[ids + 1] - offsets[ids]).sum())
    return counts
