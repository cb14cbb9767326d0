"""The main job: text, a dense model and a mixture of the same active size, and what the mixture gained."""

from loriini.quickstart.job import run_quickstart
from loriini.quickstart.settings import Quickstart

__all__ = ["Quickstart", "run_quickstart"]
