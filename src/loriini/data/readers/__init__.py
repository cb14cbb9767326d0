"""Documents from inputs of any format; every flaw names its place, and nothing is left out unsaid.

Reading is a stream: memory does not grow with the input.
"""

from loriini.data.dropped import Dropped
from loriini.data.readers.inputs import Input, Part, input_identity, parse_input, parts
from loriini.data.readers.read import read_documents, read_part
from loriini.data.readers.reading import Fields, Flaw, OnError, Reading

__all__ = [
    "Dropped",
    "Fields",
    "Flaw",
    "Input",
    "OnError",
    "Part",
    "Reading",
    "input_identity",
    "parse_input",
    "parts",
    "read_documents",
    "read_part",
]
