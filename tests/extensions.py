"""Extensions in tests: the example package's router, and the tables as they were before."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loriini.common.extension import EXTENSIONS, load_extension
from loriini.routing import DESIGNS
from loriini.routing.losses import LOSSES
from loriini.routing.registry import COMPARES_UNITS, REGISTERED
from loriini.routing.scorer import SCORERS
from loriini.routing.selection import GATES, SELECTIONS

EXAMPLE = Path(__file__).parents[1] / "examples" / "loriini-example"


def example_file() -> Path:
    """The router of the example package, as a file that `--extension` takes."""
    return EXAMPLE / "loriini_example" / "router.py"


def example() -> None:
    """Load it."""
    load_extension(str(example_file()))


@contextmanager
def tables_restored() -> Iterator[None]:
    """What is registered meanwhile is gone afterwards."""
    tables: list[Any] = [DESIGNS, SCORERS, SELECTIONS, GATES, LOSSES, *REGISTERED.values()]
    before, compares, loaded = [dict(table) for table in tables], set(COMPARES_UNITS), list(EXTENSIONS)
    try:
        yield
    finally:
        for table, content in zip(tables, before, strict=True):
            table.clear()
            table.update(content)
        COMPARES_UNITS.clear()
        COMPARES_UNITS.update(compares)
        EXTENSIONS[:] = loaded
