"""Documents from inputs of many formats. Reading is a stream: memory does not grow with the input.

Every error names its place in the input, and every document that is left out is reported.
"""

from loriini.data.read.inputs import (
    InputFile,
    absolute_input,
    input_files,
    input_identity,
    parse_input,
)
from loriini.data.read.read import read_documents, read_file
from loriini.data.read.records import MAX_DOCUMENT_CHARACTERS, Dropped, Fields, OnError, ReadOptions

__all__ = [
    "MAX_DOCUMENT_CHARACTERS",
    "Dropped",
    "Fields",
    "InputFile",
    "OnError",
    "ReadOptions",
    "absolute_input",
    "input_files",
    "input_identity",
    "parse_input",
    "read_documents",
    "read_file",
]
