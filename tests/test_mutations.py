"""The list of known mistakes still fits the code."""

import shlex
from pathlib import Path

import pytest

from mutate import ROOT
from mutations import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_line_to_change_is_there_once(mutation: Mutation) -> None:
    assert (ROOT / "src" / "loriini" / mutation.file).read_text().count(mutation.old) == 1
    paths = [part for part in shlex.split(mutation.tests) if part.startswith("tests/")]
    assert paths
    assert all(Path(ROOT, path).exists() for path in paths)
