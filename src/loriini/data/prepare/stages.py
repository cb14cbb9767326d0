"""The stages of a corpus in the order in which `prepare` builds them: what each needs, how it is built."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVarTuple

from loriini.common.errors import InputError
from loriini.common.folders import MANIFEST
from loriini.common.progress import announce, inform
from loriini.data.jobs.artifact import Artifact, OtherContents, link_artifact
from loriini.data.jobs.executors import make_executor
from loriini.data.prepare.corpus import STAGES
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
from loriini.data.read.streams import DocumentStream

_Given = TypeVarTuple("_Given")

READ_SETTINGS = (
    "documents",
    "text_field",
    "id_field",
    "domain_field",
    "on_error",
    "min_characters",
    "max_document_characters",
)


def build_stages(
    out: Path, streams: Iterable[DocumentStream], identity: Mapping[str, str], settings: PrepareSettings
) -> dict[str, Artifact]:
    """Build every stage below `out` that is not finished; returns their artifacts by name.

    `identity` holds names and hashes of what the streams read.
    """
    s = settings
    execute = make_executor(s.executor, s.workers, s.executor_options)
    make = partial(_build, out, s.reuse)
    read = {name: getattr(s, name) for name in READ_SETTINGS}
    documents = make("documents", write_documents, streams, read, identity, execute)
    tokenizer = make("tokenizer", write_tokenizer, s.tokenizer, documents, s.heldout_share, s.eos)
    tokens = make("tokens", write_tokens, documents, tokenizer, execute)
    check_enough(tokens, tokens.counts["tokens"], s.length)  # before hours of embedding
    embeddings = make("embeddings", write_embeddings, documents, s.encoder, s.seed, s.pooling, execute)
    neighbors = make("neighbors", write_neighbors, embeddings, s.neighbors, s.seed, execute)
    duplicates = make("duplicates", write_duplicates, documents, neighbors, execute)
    heldout = make("heldout", write_heldout, documents, duplicates, s.heldout_share, execute)
    window = window_for(s.length * tokens.counts["documents"] / tokens.counts["tokens"])
    order = make("order", write_order, neighbors, duplicates, heldout, s.order, s.seed, window)
    instances = make("instances", write_instances, tokens, order, s.length, execute)
    made = (documents, tokenizer, tokens, embeddings, neighbors, duplicates, heldout, order, instances)
    return {artifact.folder.name: artifact for artifact in made}


def _build(
    out: Path, reuse: str | None, stage: str, write: Callable[[Path, *_Given], Artifact], *given: *_Given
) -> Artifact:
    """Load a stage if it is finished; else take it from the corpus `reuse`, or build it, and report that."""
    folder = out / stage
    if (folder / MANIFEST).exists():
        try:
            return write(folder, *given)
        except OtherContents as other:  # later stages differ too, so removing this one does not help
            remove = "" if (out / MANIFEST).exists() else f", or remove {out}, which is not finished"
            raise InputError(
                f"{folder}: was made with {other.how}; choose another name or --out "
                f"(`prepare --reuse {out}` keeps what they do not change){remove}"
            ) from other
    announce(stage, list(STAGES), "corpus")
    if reuse and Path(reuse, stage, MANIFEST).exists():
        try:
            finished = write(Path(reuse, stage), *given)
            inform(f"{stage}: taken from {reuse}")
            return link_artifact(finished, folder)
        except OtherContents as other:
            inform(f"{stage}: made anew; that of {reuse} has {other.how}")
    return write(folder, *given)
