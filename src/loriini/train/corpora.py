"""Prepared corpora, opened and joined for training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loriini.common.checks import LARGEST
from loriini.common.errors import InputError
from loriini.data.batches.joined import InstanceSource, JoinedInstances
from loriini.data.jobs.artifact import digest
from loriini.data.prepare.corpus import open_corpus
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.read.local_text import standard_library
from loriini.model import LoriiniConfig
from loriini.train.config import TrainConfig

SMALL_VOCABULARY = 1024
"""Tokens of the small corpus's tokenizer."""


@dataclass(frozen=True)
class TrainingCorpus:
    """What training reads: instances of length+1 token ids, and their vocabulary."""

    instances: InstanceSource
    vocab_size: int
    eos_token_id: int
    digest: str
    """Hash of the instances."""
    tokenizer: Path
    """Folder of the tokenizer."""
    orders: tuple[str, ...] = ()
    """The method by which each prepared corpus ordered its documents."""


def read_corpora(paths: str | Path | Sequence[str | Path], weights: tuple[float, ...] = ()) -> TrainingCorpus:
    """One or several prepared corpora as one, mixed by `weights` if given (see `JoinedInstances`).

    Raises InputError if their tokenizers or lengths differ, or if the weights do not fit.
    """
    paths = [paths] if isinstance(paths, str | Path) else paths
    if weights and len(paths) == 1:
        raise InputError("--corpus_weights: a single corpus has no weight; leave them out")
    if weights and len(weights) != len(paths):
        raise InputError(f"--corpus_weights: {len(paths)} corpora need as many, not {len(weights)}")
    opened = [open_corpus(path) for path in paths]
    instances = tuple(corpus.instances for corpus in opened)
    stages_of_all = [corpus.manifest["stages"] for corpus in opened]
    if len({digest(stages["tokenizer"]["files"]) for stages in stages_of_all}) > 1:
        listed = ", ".join(map(str, paths))
        raise InputError(f"{listed}: made with different tokenizers; prepare them with the same --tokenizer")
    if len({part.length for part in instances}) > 1:
        listed = ", ".join(f"{path}: {part.length}" for path, part in zip(paths, instances, strict=True))
        raise InputError(
            f"cut into instances of different lengths ({listed}); prepare them with one --length"
        )
    if sum(weight * len(part) for weight, part in zip(weights, instances, strict=False)) > LARGEST:
        raise InputError(f"--corpus_weights: {weights} make epochs of over {LARGEST:g} instances; lower them")
    return TrainingCorpus(
        instances=instances[0] if len(instances) == 1 else JoinedInstances(instances, weights),
        vocab_size=instances[0].vocab_size,
        eos_token_id=instances[0].eos_token_id,
        digest=digest([stages["instances"]["files"] for stages in stages_of_all]),
        tokenizer=opened[0].tokenizer,
        orders=tuple(corpus.manifest["settings"].get("order", "") for corpus in opened),
    )


def small_corpus_folder(parent: Path, length: int) -> Path:
    """The folder of the small corpus that runs in `parent` of the same context length share."""
    return parent / f"tiny-corpus-{length}"


def small_corpus(folder: Path, length: int) -> Path:
    """Prepare a small corpus of the Python standard library's text; returns its folder.

    Trainings that begin together share it: one makes it while the others wait.
    """
    from loriini.data.prepare.prepare import prepare_documents  # imports FAISS, numba and scipy

    documents = standard_library()
    settings = PrepareSettings(tokenizer=f"bpe:{SMALL_VOCABULARY}", length=length, order="similar")
    identity = {"standard library": digest([d.id for d in documents])}
    return prepare_documents(folder, lambda drop: documents, identity, settings, wait=True).folder


def model_config(run: TrainConfig, corpus: TrainingCorpus, num_experts: int | None = None) -> LoriiniConfig:
    """The configuration of a run's model on this corpus; `num_experts` 1: of its dense warm-up's model."""
    names = run.label_names(corpus.instances)
    return run.config(corpus.vocab_size, corpus.eos_token_id, num_experts, names)
