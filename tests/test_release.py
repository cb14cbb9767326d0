import re
import runpy
from pathlib import Path

import loriini

ROOT = Path(__file__).parent.parent
VERSIONS = runpy.run_path(str(ROOT / ".ci" / "release_notes.py"))["VERSIONS"]


def test_the_version_is_the_same_everywhere():
    for file, pattern in VERSIONS.items():
        stated = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
        assert (file, stated[1]) == (file, loriini.__version__)
