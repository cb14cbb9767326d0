"""Errors that the command line prints as one line, and text from outside made safe to print."""

import errno
import re
from collections.abc import Sequence


def printable(text: object) -> str:
    r"""Text as one line that a terminal shows as it is, for names, ids and messages from outside.

    Whatever `str.isprintable` rejects is escaped: line ends and other control characters (`\n`, the `\x1b`
    of ANSI sequences), invisible and bidirectional marks (`\u202e`), and lone surrogates.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


DISK_ERRORS = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT)
OUT_OF_RESOURCES = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE)
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
SYSTEM_ERRNOS = (*DISK_ERRORS, *OUT_OF_RESOURCES, *NO_SPACE)
"""`errno` of an OSError that the system caused, not a file's contents."""
NO_MEMORY = ("can't allocate memory", "out of memory", "failed to map segment", "bad_alloc", "ALLOC_FAILED")
"""Parts of messages by which libraries report that no memory is left."""
FULL = (*NO_SPACE, errno.EFBIG)
UNNUMBERED = rf"\d+ requested and \d+ written|\(os error ({'|'.join(map(str, FULL))})\)"
"""Messages of numpy and Rust libraries about a full disk; their errors have no `errno`."""
NAMES_SHOWN = 5


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that no memory is left."""
    return isinstance(error, MemoryError) or any(part in str(error) for part in NO_MEMORY)


def is_system_error(error: BaseException) -> bool:
    """Whether an error comes from the system (memory, a full or failing disk), not a file's contents."""
    return is_out_of_memory(error) or (isinstance(error, OSError) and error.errno in SYSTEM_ERRNOS)


def is_disk_full(error: Exception) -> bool:
    """Whether an error means that nothing more can be written: full disk, quota, or file size limit."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in FULL
    return re.search(UNNUMBERED, str(error)) is not None


def first_few(names: Sequence[str]) -> str:
    """The first names and how many others there are, such as "a, b, and 3 more"."""
    more = [f"and {len(names) - NAMES_SHOWN} more"] if len(names) > NAMES_SHOWN else []
    return ", ".join([*names[:NAMES_SHOWN], *more])


class OneLineError(Exception):
    """An error with a message of one printable line."""

    def __init__(self, message: object) -> None:
        super().__init__(printable(message))


class InputError(OneLineError):
    """Wrong input: the message gives what is wrong, where (file and place), and the remedy.

    The command line prints it and exits with status 2. Never raised for a bug of the package.
    """


class Unfinished(OneLineError):
    """Work that stopped as requested and is saved; the message explains how to resume it."""


class WorkerDied(OneLineError, RuntimeError):
    """A worker process that died: the message names its task and how to resume."""
