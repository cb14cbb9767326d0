"""Who speaks when torchrun has started many processes."""

import os
from typing import TextIO


def tell(text: object, file: TextIO | None = None, every_node: bool = False) -> None:
    """Print a line once: the first process speaks for all, or the first of every node."""
    if os.environ.get("LOCAL_RANK" if every_node else "RANK", "0") == "0":
        print(text, file=file)
