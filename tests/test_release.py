import importlib.util
import re
import shutil
from pathlib import Path

import pytest

import loriini

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("release_notes", ROOT / ".ci" / "release_notes.py")
release_notes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(release_notes)


@pytest.fixture
def released(tmp_path):
    """The files of a release, whose changelog has a section for this version."""
    (tmp_path / "src" / "loriini").mkdir(parents=True)
    for name in (*release_notes.VERSIONS, "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    older = "\n\n## [0.0.1]\n\nOlder.\n"
    section = f"## [{loriini.__version__}] - 2026-12-01\n\nThe notes.{older}"
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## [Unreleased]\n\nLater.\n\n{section}")
    return tmp_path


def test_the_version_is_the_same_everywhere():
    for file, pattern in release_notes.VERSIONS.items():
        stated = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
        assert (file, stated[1]) == (file, loriini.__version__)


def test_release_notes_are_the_sections_text(released):
    assert release_notes.release_notes(f"v{loriini.__version__}", released) == "The notes."


@pytest.mark.parametrize("file", [*release_notes.VERSIONS, "CHANGELOG.md"])
def test_a_tag_that_a_file_does_not_have_is_refused(released, file):
    path = released / file
    path.write_text(path.read_text().replace(loriini.__version__, "9.9.9"))
    with pytest.raises(SystemExit, match=re.escape(file)):
        release_notes.release_notes(f"v{loriini.__version__}", released)
