"""Known mistakes, put into the code one at a time: which test catches each?

python tests/mutate.py [NAME…]

Copies the source, changes one line, runs the tests of the packages that should notice, and stops at the first
failure. First they run on the source as it is, where all must pass: a test that fails anyway notices nothing,
nor does a selection of no tests. Takes about a minute a mutation; `test_mutations.py` checks that every line
is still there.
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
        done = run_tests(mutation.tests, source)
    found = re.search(r"^FAILED (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode == 1 and found:
        return found[1]
    if done.returncode:
        sys.exit(
            f"{mutation.name}: pytest {mutation.tests} ended with {done.returncode}\n{done.stdout[-2000:]}"
        )
    return None


def run_tests(tests: str, source: Path) -> subprocess.CompletedProcess[str]:
    """Run some tests on a source folder, up to the first failure."""
    options = ["-n", "0", "-x", "-q", "-p", "no:cacheprovider", "--durations=0"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *shlex.split(tests)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def main() -> None:
    """Print a line for each mutation; exit 1 if any is not caught."""
    wanted = [mutation for mutation in MUTATIONS if mutation.name in sys.argv[1:] or not sys.argv[1:]]
    for tests in dict.fromkeys(mutation.tests for mutation in wanted):
        if code := run_tests(tests, ROOT / "src").returncode:
            sys.exit(f"pytest {tests} ended with {code} on the source as it is")
    missed = 0
    for mutation in wanted:
        test = caught_by(mutation)
        missed += test is None
        print(f"{mutation.name}: {test or 'NOT CAUGHT'}", flush=True)
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
