"""The command that trains a dense model and a mixture, and compares them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from loriini.cli.arguments import OutFolder
from loriini.quickstart.settings import Quickstart


@dataclass(frozen=True, kw_only=True)
class QuickstartCommand:
    """Train a dense model and a mixture on the same text and compare them."""

    out: OutFolder = Path("loriini-quickstart")
    """Output folder."""
    settings: Quickstart = field(default_factory=Quickstart)

    less_memory: ClassVar = "give a smaller --size"
    resumes: ClassVar = True

    def run(self) -> None:
        from loriini.quickstart.job import run_quickstart

        run_quickstart(self.settings, self.out)
