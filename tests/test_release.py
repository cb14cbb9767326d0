import importlib.util
import re
from pathlib import Path

import loriini

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("release_notes", ROOT / ".ci" / "release_notes.py")
release_notes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(release_notes)


def test_the_version_is_the_same_everywhere():
    for file, pattern in release_notes.VERSIONS.items():
        stated = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
        assert (file, stated[1]) == (file, loriini.__version__)
