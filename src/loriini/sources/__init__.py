"""Documents from inputs of any format; every flaw names its place, and nothing is left out unsaid.

Reading is a stream: memory does not grow with the input.
"""

from loriini.sources.dropped import Dropped
from loriini.sources.inputs import Input, Part, input_identity, parse_input, parts
from loriini.sources.read import read_documents, read_part, read_parts
from loriini.sources.reading import ON_ERROR, Fields, Flaw, OnError, Reading, luck

__all__ = [
    "ON_ERROR",
    "Dropped",
    "Fields",
    "Flaw",
    "Input",
    "OnError",
    "Part",
    "Reading",
    "input_identity",
    "luck",
    "parse_input",
    "parts",
    "read_documents",
    "read_part",
    "read_parts",
]
