"""The settings of `prepare` and their defaults, which are defined only here."""

import os
from dataclasses import dataclass
from typing import Annotated, Literal

from loriini.common.checks import Bounds, Count, CountOrZero, FractionBelowOne, check_fields
from loriini.common.errors import InputError
from loriini.common.hub import local_folder
from loriini.common.settings import setting
from loriini.data.jobs.executors import ExecutorName, make_executor
from loriini.data.read.records import MAX_DOCUMENT_CHARACTERS, OnError

OrderMethod = Literal["similar", "plain", "random"]
Pooling = Literal["mean", "cls", "last"]

LSA = "lsa"
"""The encoder that is fitted on the corpus; any other name is that of a trained one."""
MODULES = "modules.json"
"""In the folder of a sentence-transformers model."""
ENCODER_FILES = ("config.json", MODULES)
"""An encoder's folder holds one of these."""


@dataclass(frozen=True)
class PrepareSettings:
    """How documents become a corpus. InputError for an invalid value.

    All settings but those of the kind `aside` decide the contents of the corpus.
    """

    documents: tuple[str, ...] = ()
    """Files, folders or URLs, each `[NAME=]PATH`: NAME is the domain of documents without one."""
    text_field: str = "text"
    """Field of a record that holds its text."""
    id_field: str = "id"
    """Field of a record that holds its id."""
    domain_field: str = "domain"
    """Field of a record that holds its domain."""
    on_error: OnError = "stop"
    """`stop` at the first flawed record, or `skip` and count such records."""
    min_characters: CountOrZero = 0
    """Leave out shorter documents."""
    max_document_characters: Count = MAX_DOCUMENT_CHARACTERS
    """Leave out longer documents."""
    tokenizer: str = "bpe:8192"
    """`bpe:SIZE` to train one on the documents, or a tokenizer's path or id on the Hugging Face Hub."""
    eos: str | None = None
    """The token that ends a document, where a given tokenizer's files do not agree on one."""
    length: Count = 1024
    """Context in tokens, as in the runs that will read the corpus; an instance holds one token more."""
    order: OrderMethod = "similar"
    """Order of the documents in the corpus."""
    encoder: str = LSA
    """`lsa`, or the path or Hub id of a sentence-transformers or Hugging Face encoder."""
    pooling: Pooling = "mean"
    """Pooling of a plain Hugging Face encoder's states."""
    neighbors: Count = 50
    """Nearest neighbours kept for each document."""
    heldout_share: FractionBelowOne = 0.0
    """Share of the documents, in [0, 1), that is written to `heldout/documents.jsonl` and not trained on."""
    seed: Annotated[int, Bounds(least=0, below=1 << 31)] = 0  # FAISS accepts no larger seed
    """Seed of embeddings, neighbours and orders; the tokenizer and held-out documents do not depend on it."""
    workers: Count = setting(1, "aside")
    """Tasks that run at once, each on one thread."""
    executor: ExecutorName = setting("local", "aside")
    """Where tasks run."""
    executor_options: tuple[str, ...] = setting((), "aside")
    """`KEY=VALUE` each, for the Slurm or Ray executor."""
    reuse: str | None = setting(None, "aside")
    """Another corpus's folder; its stages are linked where they would be the same."""

    def __post_init__(self) -> None:
        check_fields(self, dashed=True)
        if self.encoder == LSA and self.pooling != PrepareSettings.pooling:
            raise InputError(f"--pooling has no effect on the encoder {LSA!r}; leave it out")
        if self.eos is not None and self.tokenizer.startswith("bpe:"):
            raise InputError(f"--eos has no effect on --tokenizer {self.tokenizer}; leave it out")
        make_executor(self.executor, self.workers, self.executor_options)


def check_encoder(name: str, pooling: Pooling) -> None:
    """InputError if there is no such encoder, or if `pooling` has no effect on it.

    Loads no weights. For an id on the Hugging Face Hub, downloads the configuration.
    """
    if name == LSA:
        return
    path = os.path.expanduser(name)
    folder = local_folder(path, ENCODER_FILES)
    if not folder.is_dir():
        raise InputError(f"encoder {name}: no such folder; give an encoder's, ORG/NAME on the Hub, or 'lsa'")
    config, modules = ((folder / file).exists() for file in ENCODER_FILES)
    if not config and not modules:
        raise InputError(
            f"encoder {name}: holds neither {' nor '.join(ENCODER_FILES)}; give an encoder's folder, or 'lsa'"
        )
    if modules and pooling != PrepareSettings.pooling:
        raise InputError(f"--pooling has no effect on the encoder {name}, which has its own; leave it out")
