"""Documents from inputs of any format; every flaw names its place, and nothing is left out unsaid.

ReadOptions is a stream: memory does not grow with the input.
"""

from loriini.sources.dropped import Dropped
from loriini.sources.fields import BadRecord, Fields
from loriini.sources.inputs import InputFile, InputSpec, input_files, input_identity, parse_input
from loriini.sources.options import ON_ERROR, OnError, ReadOptions, hash_fraction
from loriini.sources.read import read_documents, read_file, read_files

__all__ = [
    "ON_ERROR",
    "BadRecord",
    "Dropped",
    "Fields",
    "InputFile",
    "InputSpec",
    "OnError",
    "ReadOptions",
    "hash_fraction",
    "input_files",
    "input_identity",
    "parse_input",
    "read_documents",
    "read_file",
    "read_files",
]
