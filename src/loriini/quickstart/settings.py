"""The settings of the main job, and the folder that holds one job."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from loriini.analyze.comparison import DENSE
from loriini.atomic import write_json
from loriini.corpus.settings import PrepareSettings
from loriini.errors import InputError
from loriini.recipes import SIZES, quickstart_run
from loriini.routing import DESIGNS
from loriini.sources import input_identity
from loriini.train.run import Run


@dataclass(frozen=True)
class Quickstart:
    """The settings of the main job. InputError for invalid ones.

    Attributes:
        documents: what to read, as in `PrepareSettings`; by default text that is on this machine.
        design: the mixture to train beside the dense model, a name in `DESIGNS`.
        size: of both models, a name in `recipes.SIZES`.
        steps: training steps of each model; 0 for the default of the size.
        seed: of the corpus and of both trainings.
    """

    documents: tuple[str, ...] = ()
    design: str = "lory"
    size: str = "small"
    steps: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "documents", tuple(map(str, self.documents)))
        for name, table in (("size", SIZES), ("design", DESIGNS)):
            value = getattr(self, name)
            if value not in table:
                raise InputError(f"--{name} {value}: unknown; choose one of: {', '.join(table)}")
        if self.design == DENSE:
            raise InputError("--design dense: the dense model is always trained; choose a mixture")
        if self.steps < 0:
            raise InputError(f"--steps {self.steps}: give a positive number of steps")
        self.runs[self.design].check()

    @property
    def runs(self) -> Mapping[str, Run]:
        """Both trainings by name: the dense model's, then the mixture's; without a corpus."""
        return {name: quickstart_run(name, self.size, self.steps, self.seed) for name in (DENSE, self.design)}

    @property
    def prepare_settings(self) -> PrepareSettings:
        """How the training documents become instances; documents stay whole."""
        return PrepareSettings(
            documents=self.documents,
            tokenizer=f"bpe:{SIZES[self.size].vocab_size}",
            length=self.runs[DENSE].length,
            seed=self.seed,
            workers=torch.get_num_threads(),
        )


def claim_folder(settings: Quickstart, out: Path) -> None:
    """Record in `out` which job it holds. InputError if it holds another job or other files."""
    path = out / "quickstart.json"
    wanted = json.loads(json.dumps(asdict(settings)))
    if path.exists():
        found = json.loads(path.read_text())
        changed = ", ".join(sorted(name for name in wanted if found.get(name) != wanted[name]))
        if changed and (out / "corpora").exists():
            raise InputError(f"{path}: this folder holds a job with other {changed}; choose another --out")
        if not changed:
            return
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: exists and is not a quickstart's folder; choose another --out")
    input_identity(settings.documents)  # InputError for a missing path, before anything is written
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, wanted)
