"""Extensions in tests: the example of the documentation, and the tables as they were before."""

import re
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

PAGE = Path(__file__).parents[1] / "docs" / "designs.md"


def example_file(folder: Path) -> Path:
    """The documentation's example of an extension, as a file."""
    (code,) = re.findall(r"```python\n(# my_router.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    path = folder / "my_router.py"
    path.write_text(code)
    return path


def example(folder: Path) -> None:
    """Load it."""
    load_extension(str(example_file(folder)))


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
