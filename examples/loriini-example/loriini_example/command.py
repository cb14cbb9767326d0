"""A command: its docstring is its help, its fields are its options, `run` does it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from loriini.common.options import Option


@dataclass(frozen=True)
class Temperatures:
    """Print the learned temperature of each layer's cosine router."""

    model: Annotated[Path, Option("RUN", positional=True)]
    """A run's folder, or a model folder such as RUN/model."""
    digits: int = 3
    """Digits after the point."""

    def run(self) -> None:
        from loriini import load_model
        from loriini_example.router import CosineScorer

        model, _ = load_model(self.model)
        scorers = [module for module in model.modules() if isinstance(module, CosineScorer)]
        print(json.dumps([round(scorer.temperature.item(), self.digits) for scorer in scorers]))
