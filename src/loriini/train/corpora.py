"""Prepared corpora as what training reads."""

from collections.abc import Sequence
from pathlib import Path

from loriini.batches.joined import JoinedInstances
from loriini.corpus.prepare import open_corpus, prepare_documents
from loriini.corpus.settings import PrepareSettings
from loriini.errors import InputError
from loriini.jobs.artifact import digest
from loriini.sources.local_text import standard_library
from loriini.train.loop import Corpus


def read_corpora(paths: Sequence[Path], weights: tuple[float, ...] = ()) -> Corpus:
    """One or several prepared corpora as one, mixed by `weights` where there are any (see `JoinedInstances`).

    Raises InputError when their tokenizers or lengths are different, or the weights do not fit.
    """
    if weights and len(paths) == 1:
        raise InputError(
            "corpus_weights: there is one corpus, and nothing to weigh it against; leave them out"
        )
    opened = [open_corpus(path) for path in paths]
    instances = tuple(corpus.instances for corpus in opened)
    files = [corpus.manifest["stages"] for corpus in opened]
    tokenizers = {digest(stages["tokenizer"]["files"]) for stages in files}
    if len(tokenizers) > 1:
        listed = ", ".join(map(str, paths))
        raise InputError(f"{listed}: made with different tokenizers; prepare them with the same --tokenizer")
    lengths = {part.length for part in instances}
    if len(lengths) > 1:
        listed = ", ".join(f"{path}: {part.length}" for path, part in zip(paths, instances, strict=True))
        raise InputError(
            f"cut into instances of different lengths ({listed}); prepare them with one --length"
        )
    try:
        joined = JoinedInstances(instances, weights)
    except ValueError as error:
        raise InputError(f"corpus_weights: {error}") from error
    return Corpus(
        instances=instances[0] if len(instances) == 1 else joined,
        vocab_size=instances[0].vocab_size,
        eos_token_id=instances[0].eos_token_id,
        digest=digest([stages["instances"]["files"] for stages in files]),
        tokenizer=opened[0].tokenizer,
        orders=tuple(corpus.manifest["settings"].get("order", "") for corpus in opened),
    )


def small_corpus(folder: Path, length: int) -> Path:
    """A small corpus of the Python standard library's text, for the recipes that need none given."""
    documents = standard_library()
    settings = PrepareSettings(tokenizer="bpe:1024", length=length, order="similar")
    identity = {"standard library": digest([d.id for d in documents])}
    return prepare_documents(folder, lambda drop: documents, identity, settings).folder
