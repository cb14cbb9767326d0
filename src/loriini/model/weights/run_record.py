"""How a model was trained, from the record of the run that made it."""

from dataclasses import dataclass, fields
from pathlib import Path

from loriini.common.checks import Count, wrong_fields
from loriini.common.errors import InputError
from loriini.common.folders import MODEL, RUN, model_folder
from loriini.common.hardware import Precision
from loriini.common.json_file import read_object
from loriini.model.configuration import LoriiniConfig


@dataclass(frozen=True)
class Trained:
    """What the `run.json` next to a model says of its training; None: not recorded."""

    precision: Precision | None = None
    length: Count | None = None
    document_mask: bool | None = None
    steps: Count | None = None
    batch_size: Count | None = None
    corpus: list[str] | None = None

    @property
    def tokens(self) -> int | None:
        """Number of tokens that the model was trained on; None: not recorded."""
        if self.steps and self.batch_size and self.length:
            return self.steps * self.batch_size * self.length
        return None

    def context(self, config: LoriiniConfig) -> int:
        """Tokens of context that the model was trained with; if not recorded, the longest of its `config`."""
        return self.length or config.max_position_embeddings

    @property
    def evaluated_in(self) -> Precision:
        """The precision to evaluate in: that of training, but bf16 only where the hardware has it."""
        return "fp32" if self.precision == "fp32" else "auto"


def training_of(path: Path) -> Trained:
    """How a model was trained, as far as its run says. InputError for values that a run cannot have."""
    folder = run_of(path)
    if folder is None:
        return Trained()
    values = read_object(folder / RUN, f"give {folder / MODEL} without its run, or another run")
    recorded = Trained(**{each.name: values.get(each.name) for each in fields(Trained)})
    for name, value, expected in wrong_fields(recorded):
        raise InputError(f"{folder / RUN}: {name} is {value!r}; it must be {expected}")
    return recorded


def run_of(path: Path) -> Path | None:
    """The folder of the run whose final model this is; None for any other model, even in a run's folder."""
    folder = model_folder(path)
    return folder.parent if folder.name == MODEL and (folder.parent / RUN).exists() else None
