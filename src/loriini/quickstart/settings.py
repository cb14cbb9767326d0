"""The settings of the quickstart, and the folder of its results."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import torch

from loriini.common.checks import Count, Seed, check_choice, check_fields, option_of
from loriini.common.errors import InputError
from loriini.data.jobs.artifact import digest
from loriini.data.jobs.lock import claim_folder
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.read import OnError
from loriini.recipes import SIZES, quickstart_run
from loriini.routing import DESIGNS
from loriini.train.config import TrainConfig

DENSE = "dense"
"""The dense model's name in the files; the mixture's is its design."""
HELDOUT = "documents/heldout.jsonl"
"""The held-out documents in the folder; written after those of training."""


@dataclass(frozen=True)
class Quickstart:
    """The settings of the quickstart. InputError for invalid ones.

    Attributes:
        documents: what to read, as in `PrepareSettings`; by default text that is on this machine.
        design: the mixture to compare with the dense model, a name in `DESIGNS`.
        size: of both models, a name in `recipes.SIZES`.
        steps: training steps of each model; None for the default of the size.
        seed: of the corpus and of both trainings.
        text_field, domain_field: of a record of `documents`.
        on_error: `stop` at the first flawed record of `documents`, or `skip` and count them.
    """

    documents: tuple[str, ...] = ()
    design: str = "lory"
    size: str = "small"
    steps: Count | None = None
    seed: Seed = 0
    text_field: str = "text"
    domain_field: str = "domain"
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        check_fields(self, dashed=True)
        for name in ("text_field", "domain_field"):
            if not self.documents and getattr(self, name) != getattr(Quickstart, name):
                raise InputError(f"{option_of(name)}: there are no --documents to read; leave it out")
        if self.design == DENSE:
            raise InputError("--design dense: the dense model is always trained; choose a mixture")
        mixtures = [name for name in DESIGNS if name != DENSE]
        for name, choices in (("size", list(SIZES)), ("design", mixtures)):
            check_choice(f"--{name}", getattr(self, name), choices)
        self.runs[self.design].check()
        self.prepare_settings()  # InputError for settings that no corpus has

    @cached_property
    def runs(self) -> Mapping[str, TrainConfig]:
        """Both trainings by name: the dense model's, then the mixture's; without a corpus."""
        return {name: quickstart_run(name, self.size, self.steps, self.seed) for name in (DENSE, self.design)}

    def prepare_settings(self) -> PrepareSettings:
        """How the training documents become instances; documents stay whole."""
        return PrepareSettings(
            documents=self.documents,
            tokenizer=f"bpe:{SIZES[self.size].vocab_size}",
            length=self.runs[DENSE].length,
            seed=self.seed,
            workers=torch.get_num_threads(),
        )

    def claim(self, out: Path, identity: Mapping[str, str]) -> None:
        """Record in the folder `out` that it holds this job, on inputs of an identity; see `claim_folder`."""
        recorded = asdict(self)
        del recorded["on_error"]  # a flawed record may be skipped in a job that stopped at it
        if identity:
            recorded["contents of documents"] = digest(identity)
        claim_folder(out / "quickstart.json", recorded, (out / HELDOUT).exists(), "loriini quickstart")
