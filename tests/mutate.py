"""Known mistakes, put into the code one at a time: which test catches each?

python tests/mutate.py [NAME…]

Copies the source, changes one line, runs the tests of the packages that should notice, and stops at the first
failure. Takes about a minute a mutation; `test_mutations.py` checks that every line is still there.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[1]


def caught_by(mutation: Mutation) -> str | None:
    """The first test that fails with the mutation in place; None where all pass."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source)
        mutation.apply(source)
        environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "0",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "--durations=0",
        ]
        done = subprocess.run(
            [*command, *shlex.split(mutation.tests)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return found[1] if found else None if done.returncode == 0 else f"pytest ended with {done.returncode}"


def main() -> None:
    """Print a line for each mutation; exit 1 if any is not caught."""
    wanted = sys.argv[1:]
    missed = 0
    for mutation in MUTATIONS:
        if not wanted or mutation.name in wanted:
            test = caught_by(mutation)
            missed += test is None
            print(f"{mutation.name}: {test or 'NOT CAUGHT'}", flush=True)
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
