"""The stages of a corpus in the order in which `prepare` builds them: what each needs, how it is built."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

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
    documents = make("documents", lambda to: write_documents(to, streams, read, identity, execute))
    tokenizer = make(
        "tokenizer", lambda to: write_tokenizer(to, s.tokenizer, documents, s.heldout_share, s.eos)
    )
    tokens = make("tokens", lambda to: write_tokens(to, documents, tokenizer, execute))
    check_enough(tokens, tokens.counts["tokens"], s.length)  # before hours of embedding
    embeddings = make(
        "embeddings", lambda to: write_embeddings(to, documents, s.encoder, s.seed, s.pooling, execute)
    )
    neighbors = make("neighbors", lambda to: write_neighbors(to, embeddings, s.neighbors, s.seed, execute))
    duplicates = make("duplicates", lambda to: write_duplicates(to, documents, neighbors, execute))
    heldout = make("heldout", lambda to: write_heldout(to, documents, duplicates, s.heldout_share, execute))
    window = window_for(s.length * tokens.counts["documents"] / tokens.counts["tokens"])
    order = make("order", lambda to: write_order(to, neighbors, duplicates, heldout, s.order, s.seed, window))
    instances = make("instances", lambda to: write_instances(to, tokens, order, s.length, execute))
    made = (documents, tokenizer, tokens, embeddings, neighbors, duplicates, heldout, order, instances)
    return {artifact.folder.name: artifact for artifact in made}


def _build(out: Path, reuse: str | None, stage: str, write: Callable[[Path], Artifact]) -> Artifact:
    """Load a stage if it is finished; else take it from the corpus `reuse`, or build it, and report that."""
    folder = out / stage
    if (folder / MANIFEST).exists():
        try:
            return write(folder)
        except OtherContents as other:  # later stages differ too, so removing this one does not help
            remove = "" if (out / MANIFEST).exists() else f", or remove {out}, which is not finished"
            raise InputError(
                f"{folder}: was made with {other.how}; choose another name or --out "
                f"(`prepare --reuse {out}` keeps what they do not change){remove}"
            ) from other
    announce(stage, list(STAGES), "corpus")
    earlier = Path(reuse, stage) if reuse else None
    if earlier and (earlier / MANIFEST).exists():
        try:
            finished = write(earlier)
        except OtherContents as other:
            inform(f"{stage}: made anew; that of {reuse} has {other.how}")
        else:
            inform(f"{stage}: taken from {reuse}")
            return link_artifact(finished, folder)
    return write(folder)
