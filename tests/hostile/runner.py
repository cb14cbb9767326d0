"""Runs a row of the tables: a command on harmed input, in a forked process with limits.

A row fails on a traceback, a signal, more than one error line, control characters in the output, another exit
code or line than expected, and more than its time or memory. A table is a module `rows_*` with `ROWS`.
"""

import os
import re
import resource
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cli.calls import PROGRESS
from together import CONTEXT

Harm = Callable[[Path], None]
NOTICE = re.compile(
    r"^.*: ((its design .* and )?routers (kept|newly)|resumed after step \d).*\n", re.MULTILINE
)
TABLE = re.compile(
    r"^perplexity of held-out text.*\ndomain +tokens .*\n(.* [\d,]+( +[\d.,]+)+\n)+", re.MULTILINE
)
"""What `evaluate` shows beside its JSON."""
MARKER = "ran.marker"
"""A file that planted code writes into the folder when it runs."""


def nothing(folder: Path) -> None:
    """Leave the input as it is."""


@dataclass(frozen=True)
class Row:
    """`harm` is done to a copy of the template folder, then the command runs in it."""

    name: str
    command: str
    line: str
    """A regular expression for the one error line (`code` 2), or for standard output (`code` 0)."""
    harm: Harm = nothing
    code: int = 2
    within: Harm = nothing
    """Done to the process of the command, in its folder; an empty `line` expects no line at all."""
    drill: bool = False
    seconds: float = 300.0
    """Generous: the machine may be loaded."""
    gigabytes: float = 3.0
    """Of private memory, above that of the process before the command."""
    warning: str = ""
    """A regular expression that a warning must match."""


@dataclass(frozen=True)
class Ended:
    """How a command ended; negative codes are signals, None is a timeout."""

    code: int | None
    out: str
    err: str
    peak_gigabytes: float
    seconds: float
    ran_code: bool


def rows_of(
    commands: dict[str, str],
    what: str,
    harms: dict[str, Harm],
    names: Iterable[str],
    line: str,
    every: int = 1,
    first: int = 0,
) -> Iterator[Row]:
    """Every harm with every command; in the suite every `every`-th harm, each with the next command."""
    names = list(names)
    for i, (name, harm) in enumerate(harms.items(), first):
        for j, command in enumerate(names):
            drill = i % every != 0 or j != (first + i // every) % len(names)
            yield Row(f"{command}: {what} {name}", commands[command], line, harm, drill=drill)


def problems(row: Row, ended: Ended) -> list[str]:
    """What is wrong with how a row's command ended."""
    if ended.code is None:
        return [f"not done after {row.seconds} s"]
    found = []
    if ended.code < 0:
        found.append(f"killed by {signal.Signals(-ended.code).name}")
    if ended.code != row.code:
        found.append(f"exit code {ended.code} instead of {row.code}")
    if ended.ran_code:
        found.append("ran code of the input")
    if "Traceback" in ended.err:
        found.append("a traceback")
    lines = TABLE.sub("", NOTICE.sub("", PROGRESS.sub("", ended.err))).splitlines()
    errors = [line for line in lines if not line.startswith("warning: ")]
    if len(errors) != (row.code != 0 and bool(row.line)):
        found.append(f"{len(errors)} error lines")
    if not re.search(row.line, ended.err if row.code else ended.out):
        found.append(f"no {row.line!r} in the output")
    if not re.search(row.warning, "".join(line for line in lines if line not in errors)):
        found.append(f"no {row.warning!r} in the warnings")
    if not (ended.out + ended.err).replace("\n", "").isprintable():
        found.append("control characters")
    return found and [*found, ended.err[-2000:], ended.out[-500:]]


def run_row(row: Row, template: Path, folder: Path) -> Ended:
    """Copy the template to `folder`, harm it, and run the row's command there."""
    shutil.copytree(template, folder)
    row.harm(folder)
    return call(row.command, folder, row.seconds, row.gigabytes, row.within)


def call(
    command: str, folder: Path, seconds: float = 300.0, gigabytes: float = 3.0, within: Harm = nothing
) -> Ended:
    """Run a command in `folder`, in a process forked from one that has imported the package."""
    process = CONTEXT.Process(target=_run, args=(shlex.split(command), folder, gigabytes, within))
    process.start()
    process.join(seconds)
    code = process.exitcode
    if code is None:
        assert process.pid
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
    out, err = (
        path.read_text(errors="backslashreplace") if (path := folder.with_suffix(end)).exists() else ""
        for end in (".out", ".err")
    )
    usage = folder.with_suffix(".usage")
    peak, used = map(float, usage.read_text().split()) if usage.exists() else (float("nan"),) * 2
    return Ended(code, out, err, peak, used, (folder / MARKER).exists())


def _run(arguments: list[str], folder: Path, gigabytes: float, within: Harm) -> None:
    """The forked process: redirect, limit, run."""
    os.setpgid(0, 0)
    os.chdir(folder)
    for stream, end in ((sys.stdout, ".out"), (sys.stderr, ".err")):
        file = os.open(folder.with_suffix(end), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, stream.fileno())
    held = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    limit = held + int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    from loriini.cli import main
    from loriini.data.prepare.similarity import lsa

    lsa.FEATURES, lsa.MOST_DIMENSIONS = 1 << 10, 16
    within(folder)
    try:
        main(arguments)
    finally:
        both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        peak, used = max(u.ru_maxrss for u in both), sum(u.ru_utime + u.ru_stime for u in both)
        folder.with_suffix(".usage").write_text(f"{peak / 2**20:.2f} {used:.2f}")
        sys.stdout.flush()
        sys.stderr.flush()
