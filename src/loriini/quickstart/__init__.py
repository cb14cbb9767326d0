"""`loriini quickstart`: trains a dense model and a mixture of equal active size, and compares them."""

from loriini.quickstart.job import run_quickstart
from loriini.quickstart.settings import Quickstart

__all__ = ["Quickstart", "run_quickstart"]
