"""Setup of the process before a command runs, and one-line messages for errors of the machine."""

import errno
import io
import logging
import os
import sys
import warnings

from loriini.common.errors import DISK_ERRORS, OUT_OF_RESOURCES, is_disk_full, is_out_of_memory, printable

NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
WRONG_PATH = (errno.ENAMETOOLONG, errno.ELOOP, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
"""An impossible name, a file where a folder must be, or a folder where a file must be."""
LIBRARIES = ("transformers", "huggingface_hub", "datasets", "torch", "filelock")


def prepare_process() -> None:
    """Let standard streams write any text, and configure the libraries.

    OpenMP threads wait without spinning, so that they delay each other less on busy cores, and tensors of
    changing sizes do not fragment a GPU's memory; both must be set before torch is imported. Our errors are
    one line, so libraries' own warnings about them are turned off.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # for paths that are not UTF-8
            stream.reconfigure(errors="backslashreplace")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    warnings.filterwarnings("ignore", "Reading `.npy`", UserWarning)  # numpy's, about a damaged header
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(logging.ERROR)


def one_line(error: BaseException, command: type | None) -> str | None:
    """The message for an error of the machine or its disk, with a remedy; None for other errors.

    A command may say how to lower its memory (`less_memory`) and whether it resumes its work (`resumes`).
    """
    if is_out_of_memory(error):
        remedies = filter(None, [getattr(command, "less_memory", ""), "give it more memory"])
        return f"out of memory; {', or '.join(remedies)}"
    if not isinstance(error, OSError) or (remedy := _remedy(error, command)) is None:
        return None
    return f"{printable(error.filename or 'the disk')}: {error.strerror or error.args[0]}; {remedy}"


def again(command: type | None) -> str:
    """What to do after a command was interrupted, or failed for a reason outside it."""
    return "run the same command again" + " to resume" * getattr(command, "resumes", False)


def _remedy(error: OSError, command: type | None) -> str | None:
    """What the user can do about a file system's error; None for other errors."""
    if is_disk_full(error):
        return f"free some space, then {again(command)}"
    if error.errno in DISK_ERRORS:
        return f"the disk or its network fails; check them, then {again(command)}"
    if error.errno in NO_ACCESS:
        return f"grant access or choose another place, then {again(command)}"
    if error.errno in WRONG_PATH:
        return "choose another path"
    if error.errno in OUT_OF_RESOURCES:
        return "the limits of this process or machine are reached; raise them (`ulimit -a`)"
    return None
