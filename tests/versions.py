"""The interpreters and versions that `pyproject.toml` admits: does the package install, does the suite pass?

python tests/versions.py [NAME…] [-- PYTEST ARGUMENTS…]

Each combination gets a new virtual environment. Takes the suite's time and some 8 GB of disk a combination;
prints a line for each.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Combination:
    """An interpreter, `constraints` as pip reads them, and arguments of pytest."""

    python: str
    constraints: tuple[str, ...]
    arguments: tuple[str, ...] = ()


def lowest() -> Iterator[str]:
    """The lower bound of everything that the extra `test` installs, as an exact version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for requirement in sum((extras[name] for name in extras if name != "docs"), project["dependencies"]):
        if not requirement.startswith("loriini["):
            yield re.sub(r"^([\w-]+)(?:\[.*\])?>=([\w.]+)[^;]*", r"\1==\2", requirement)


COMBINATIONS = {
    "lowest": Combination("python3.11", tuple(lowest()), ("-W", "default::DeprecationWarning")),
    "3.12": Combination("python3.12", ("torch==2.12.0",)),
    "3.13": Combination("python3.13", ("torch==2.13.0",)),
    "3.14": Combination("python3.14", ("torch==2.13.0",)),
}
"""Old versions may use what others of them deprecate: for `lowest` that is no error."""


def run(*command: str | Path) -> tuple[bool, str]:
    """Whether the command succeeds, and its last line; all of its lines go to standard error."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    last = ""
    with subprocess.Popen(["env", *command], cwd=ROOT, env=environment, **output) as process:
        for line in process.stdout:
            print(line, end="", file=sys.stderr, flush=True)
            last = line.strip() or last
    return process.returncode == 0, last


def outcome(combination: Combination, arguments: list[str]) -> tuple[bool, str]:
    """Whether the suite passes in a new virtual environment, and the last line of what it came to."""
    with tempfile.TemporaryDirectory() as folder:
        constraints, python = Path(folder, "constraints.txt"), Path(folder, "venv", "bin", "python")
        constraints.write_text("\n".join(combination.constraints))
        pip = (python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--constraint", constraints)
        steps = {
            "no such interpreter": (combination.python, "-m", "venv", python.parents[1]),
            "not installed": (*pip, "--editable", ".[test]"),
            "suite": (python, "-m", "pytest", *combination.arguments, *arguments),
        }
        for step, command in steps.items():
            passed, line = run(*command)
            if not passed:
                return False, f"{step}: {line}"
    return True, line


def main() -> None:
    """Print a line for each combination; exit 1 unless the suite passes in all."""
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    names, arguments = sys.argv[1:split], sys.argv[split + 1 :]
    good = True
    for name in names or COMBINATIONS:
        passed, line = outcome(COMBINATIONS[name], arguments)
        good &= passed
        print(f"{name}: {line}", flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
