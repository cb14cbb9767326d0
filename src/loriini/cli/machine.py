"""Setup of the process before a command runs, and one-line messages for errors of the machine."""

import errno
import io
import logging
import os
import stat
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from loriini.common.atomic import unfinished
from loriini.common.errors import DISK_ERRORS, OUT_OF_RESOURCES, InputError, is_out_of_memory, printable

RESUMING = ("quickstart", "prepare", "train", "compare", "reproduce")
"""Commands that keep what an interrupted one has done."""
LIBRARIES = ("transformers", "huggingface_hub", "datasets", "torch", "filelock")
LESS_MEMORY = {
    "quickstart": "give a smaller --size",
    "prepare": "lower --workers or --neighbors",
    "train": "lower --micro_batch_size or --length, set --speed.activation_checkpointing true",
    "evaluate": "lower --batch-size",
    "compare": "lower --jobs or --micro_batch_size, set --speed.activation_checkpointing true",
    "reproduce": "lower --jobs, or give a smaller --scale",
}
"""What makes a command need less memory."""


def prepare_process() -> None:
    """Reopen closed standard streams, let them write any text, and configure the libraries.

    A closed stream is `/dev/null`, as for Python itself: the work is done, and the exit code is the same.
    OpenMP's threads wait without spinning, so that they hold each other up less on busy cores, and a GPU's
    memory is not split up by tensors of changing sizes; both must be set before torch is imported. An error
    of ours is one line; the warnings with which libraries precede it are left out. InputError where the
    working folder was removed.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # otherwise a file of ours would get the number of a closed stream, and messages
    os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))
        elif isinstance(stream, io.TextIOWrapper):  # for paths that are not UTF-8
            stream.reconfigure(errors="backslashreplace" if number else "surrogateescape")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:  # the variable's older name
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    warnings.filterwarnings("ignore", "Reading `.npy`", UserWarning)  # numpy's, of a damaged header
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError("the working folder was removed; change to another") from None


def one_line(error: BaseException, command: str) -> str | None:
    """The message for an error of the machine or its disk, with what the user can do; None for others."""
    if is_out_of_memory(error):
        remedies = [LESS_MEMORY[command]] if command in LESS_MEMORY else []
        return f"out of memory; {', or '.join([*remedies, 'give it more memory'])}"
    if not isinstance(error, OSError) or (remedy := _remedy(error, command)) is None:
        return None
    return f"{printable(error.filename or 'the disk')}: {error.strerror or error.args[0]}; {remedy}"


def again(command: str) -> str:
    """What to do after a command was interrupted or failed for a reason outside of it."""
    return "run the same command again" + " to resume" * (command in RESUMING)


def _remedy(error: OSError, command: str) -> str | None:
    """What the user can do about a file system's error; None for other errors."""
    from loriini.data.jobs.artifact import is_disk_full

    if is_disk_full(error):
        return f"free some space, then {again(command)}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"grant access or choose another place, then {again(command)}"
    if error.errno in DISK_ERRORS:
        return f"the disk or its network fails; check them, then {again(command)}"
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return "choose another path"
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return "a file is where a folder must be; choose another place, or remove it"
    if error.errno == errno.EISDIR:
        return "a folder is where a file must be; choose another place"
    if error.errno in OUT_OF_RESOURCES:
        return "the limits of this process or machine are reached; raise them (`ulimit -a`)"
    return None


def check_output(option: str, path: Path, is_file: bool) -> None:
    """InputError for a path that no file, or no folder, can be written to; before any work is done.

    A file is written whole and renamed, so a pipe or a device would be replaced: it is refused.
    """
    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError:  # some libraries cannot write there
        raise InputError(f"{option} {text}: the name is not UTF-8; choose another") from None
    if "\0" in text:
        raise InputError(f"{option} {text}: the name has a NUL; choose another")
    try:
        if path.is_dir():
            if is_file:
                raise InputError(f"{option} {text}: is a folder; give the name of a file")
            return
        if is_file:
            with suppress(FileNotFoundError):
                os.lstat(unfinished(path))  # its name is longer
        found = os.stat(path)
    except FileNotFoundError:
        above = next(parent for parent in (*path.parents, Path.cwd()) if parent.exists())
        if not above.is_dir():
            raise InputError(f"{option} {text}: {above} is a file; choose another place") from None
        _check_writable(option, text, above)
        return
    except NotADirectoryError:
        raise InputError(f"{option} {text}: a file is where a folder must be; choose another place") from None
    except OSError as error:
        raise InputError(f"{option} {text}: {error.strerror}; choose another path") from None
    if not is_file:
        raise InputError(f"{option} {text}: is a file; choose another place")
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{option} {text}: is a pipe or device; give the name of a file")
    _check_writable(option, text, path.parent)


def _check_writable(option: str, text: str, folder: Path) -> None:
    """InputError for a folder in which no file can be made; one is made there and removed."""
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"{option} {text}: nothing can be written in {folder} ({error.strerror}); choose another place"
        ) from None
