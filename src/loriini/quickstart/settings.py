"""The settings of the quickstart, and the folder of its results."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from loriini.common.checks import Count, Seed, check_choice, check_fields
from loriini.common.errors import InputError
from loriini.common.options import refuse_given
from loriini.data.jobs.artifact import digest
from loriini.data.jobs.lock import claim_folder
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.read.document import Contexts
from loriini.data.read.names import HELDOUT
from loriini.data.read.records import OnError

if TYPE_CHECKING:
    from loriini.train.config import TrainConfig

DENSE = "dense"
"""The dense model's name in the files; the mixture's is its design."""


def documents_file(out: Path, side: str) -> Path:
    """The file of a side's documents, `train` or `heldout`, in a job's folder; `heldout` is written last."""
    return out / "documents" / f"{side}.jsonl"


@dataclass(frozen=True)
class QuickstartSettings:
    """The settings of the quickstart. InputError for invalid ones."""

    documents: tuple[str, ...] = ()
    """Your own documents, as for `loriini prepare` (text found on this machine)."""
    design: str = "lory"
    """The mixture to train beside the dense model."""
    size: str = "small"
    """Size of both models: small, medium or large."""
    steps: Count | None = None
    """Training steps of each model (those of the size)."""
    seed: Seed = 0
    """Seed of every random choice."""
    text_field: str = "text"
    """Field of a document's text."""
    domain_field: str = "domain"
    """Field of a document's domain."""
    on_error: OnError = "stop"
    """What to do with a flawed record."""
    contexts: Contexts = "documents"
    """How held-out text is scored: each document by itself, a long one in windows, or all strung together."""

    def __post_init__(self) -> None:
        check_fields(self, dashed=True)
        if not self.documents:
            refuse_given(self, ("text_field", "domain_field"), "is for --documents; leave it out")
        if self.design == DENSE:
            raise InputError("--design dense: the dense model is always trained; choose a mixture")
        from loriini.recipes.small import SIZES
        from loriini.routing import DESIGNS

        check_choice("--size", self.size, SIZES)
        check_choice("--design", self.design, [name for name in DESIGNS if name != DENSE])
        self.runs[self.design].check()
        self.prepare_settings()  # InputError for settings that no corpus has

    @cached_property
    def runs(self) -> Mapping[str, "TrainConfig"]:
        """Both trainings by name: the dense model's, then the mixture's; without a corpus."""
        from loriini.recipes.small import quickstart_run

        return {name: quickstart_run(name, self.size, self.steps, self.seed) for name in (DENSE, self.design)}

    def prepare_settings(self) -> PrepareSettings:
        """How the training documents become a corpus."""
        import torch

        from loriini.recipes.small import SIZES

        return PrepareSettings(
            documents=self.documents,
            tokenizer=f"bpe:{SIZES[self.size].vocab_size}",
            length=self.runs[DENSE].length,
            seed=self.seed,
            workers=torch.get_num_threads(),
        )

    def claim(self, out: Path, identity: Mapping[str, str]) -> None:
        """Record this job and its inputs' `identity` in the folder `out`; see `claim_folder`."""
        recorded = asdict(self)
        del recorded["on_error"]  # a flawed record may be skipped in a job that stopped at it
        if identity:
            recorded["contents of documents"] = digest(identity)
        claim_folder(
            out / "quickstart.json", recorded, documents_file(out, HELDOUT).exists(), "loriini quickstart"
        )
